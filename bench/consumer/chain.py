"""Chain: measures the cost of the chain headers of a message in microseconds of CPU, and their size in bytes.

`hop`: read the consumed headers, begin, produce: all the work that a service adds to a message. The timestamps of the
messages are PER_MS to a millisecond. Control: the same loop around a copy of the headers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

from bench.measure import median_spent
from tsdb.chain import Chain, Link, Mode, Written

COUNT = 20_000
ROUNDS = 5
REACH_US = 5.0
PER_MS = 20
T0 = 1_767_323_045_678


def main(argv: Sequence[str]) -> dict[str, object]:
    """Microseconds a message, as medians of ROUNDS. The goal is below REACH_US."""
    parser = argparse.ArgumentParser(prog="bench chain", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    arguments = parser.parse_args(argv)
    count = COUNT // 10 if arguments.quick else COUNT
    result: dict[str, object] = {"reach_us": REACH_US}
    for mode in (Mode.TREE, Mode.FULL, Mode.DEBUG):
        chain = Chain("tsdb", "bench", mode)
        messages = [_message(chain, number) for number in range(count)]
        result[mode.value] = {
            "bytes": sum(len(name) + len(value) for name, value in messages[0]),
            "first_us": _cost_us(partial(_first, chain), messages),
            "read_us": _cost_us(chain.read, messages),
            "hop_us": _cost_us(partial(_hop, chain), messages),
            "control_us": _cost_us(list, messages),
        }
    return result


def _message(chain: Chain, number: int) -> Written:
    created_at_ms = T0 + number // PER_MS
    return chain.begin(Link(created_at_ms, created_at_ms - 100)).produce()


def _first(chain: Chain, headers: Written) -> Written:
    return chain.first()


def _hop(chain: Chain, headers: Written) -> Written:
    return chain.begin(chain.read(headers)).produce()


def _cost_us(call: Callable[[Written], object], messages: Sequence[Written]) -> float:
    def many() -> None:
        for headers in messages:
            call(headers)

    return round(median_spent(many, ROUNDS).cpu_s / len(messages) * 1e6, 2)
