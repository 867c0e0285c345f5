"""Requests of simulated senders: each is answered, and an OK names the records that hold its samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from ingest.pipeline import WriteResult
from support.simulation.oracle import Oracle, Violation
from tsdb.model.errors import Unavailable

Place = tuple[int, int, int, int]
"""Partition, record offset, series id, ts_ms."""


@dataclass(frozen=True)
class Request:
    """samples: (partition, series id, ts_ms, bits of the value) of each. announces: it may wait for an announcement, so
    that later requests may overtake it."""

    samples: Sequence[tuple[int, int, int, int]]
    answer: Future[WriteResult]
    announces: bool = False


def check_answers(requests: Sequence[Request], oracle: Oracle, counts: Counter[str]) -> None:
    """Raises Violation. counts: receives what the senders were answered, and the records of several requests."""
    named: Counter[tuple[int, int]] = Counter()
    newest: dict[Place, int] = {}
    for request in requests:
        if not request.answer.done():
            raise Violation(f"a request is not answered: {request.samples}")
        error = request.answer.exception()
        if error is None:
            named.update(_check_tokens(request, oracle, newest))
            counts["accepted"] += 1
        elif isinstance(error, Unavailable):
            counts["write refused"] += 1
        else:
            raise error
    counts["joined"] += sum(count > 1 for count in named.values())
    # Requests that may have waited, or that failed in part, may be anywhere in a record.
    loose = [request for request in requests if request.announces or request.answer.exception() is not None]
    anywhere = {sample[:3] for request in loose for sample in request.samples}
    for (partition, offset, series, ts_ms), bits in newest.items():
        if (partition, series, ts_ms) in anywhere:
            continue
        shown = [entry.bits for entry in oracle.entries[partition][series][ts_ms] if entry.order == offset]
        if shown != [bits]:
            raise Violation(
                f"record {offset} of partition {partition} has {shown} for series {series} at {ts_ms}; the request"
                f" that came last has {bits}"
            )


def _check_tokens(request: Request, oracle: Oracle, newest: dict[Place, int]) -> set[tuple[int, int]]:
    """newest: receives by record the value of each sample, which is of the request that came last."""
    tokens = {(token.partition, token.record_offset) for token in request.answer.result().tokens}
    for partition, series, ts_ms, bits in request.samples:
        # Of one record and time the oracle keeps the last sample, which may be of another request.
        orders = {(partition, entry.order) for entry in oracle.entries[partition][series][ts_ms]}
        if not orders & tokens:
            raise Violation(f"no record of {tokens} holds series {series} at {ts_ms}: partition {partition}, {orders}")
        for _, offset in orders & tokens:
            newest[partition, offset, series, ts_ms] = bits
    return tokens
