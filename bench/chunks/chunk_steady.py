"""Chunk steady: measures the CPU of a chunker process while 150 k samples/s flow through a real broker, 18 partitions.

No window closes during the run: bench/chunks/chunk_stage.py measures the emission. The control is a process that only
consumes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.flow_process import SERIES, Flow
from bench.ground import PARTITIONS, kafka_log
from bench.measure import cpu_of, rss_mib, say
from bench.store.steady import WARM_S, consume_alone
from stack.ports import Ports
from tsdb.log.topics import LOG_APPEND_TIME

READY_WITHIN_S = 300.0


def main(argv: Sequence[str]) -> dict[str, object]:
    """Cores used by the chunker, and its lag."""
    parser = argparse.ArgumentParser(prog="bench chunk_steady", description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--series", type=int, default=SERIES, help="each writes a sample a second")
    parser.add_argument("--quick", action="store_true", help="10 seconds")
    arguments = parser.parse_args(argv)
    seconds = 10.0 if arguments.quick else arguments.seconds
    with kafka_log(PARTITIONS, broker_times=LOG_APPEND_TIME) as url, _chunker(url) as (pid, http):
        with Flow(url, series=arguments.series) as flow:
            time.sleep(WARM_S)
            before, cpu, started = _state(http), cpu_of(pid), time.monotonic()
            time.sleep(seconds)
            after, took = _state(http), time.monotonic() - started
            cores, lag = (cpu_of(pid) - cpu) / took, max(each["lag_ms"] or 0 for each in after.values())
            say(f"chunker {cores:.2f} cores")
            control = consume_alone(url, min(seconds, 10.0))
            memory = rss_mib(pid)
        records = sum(after[name]["next_offset"] - before[name]["next_offset"] for name in after)
    return {
        "records_per_s": round(records / took),
        "written": flow.wrote,
        "chunker_cores": round(cores, 3),
        "consume_alone_cores": round(control, 3),
        "lag_ms": lag,
        "rss_mib": memory,
    }


@contextmanager
def _chunker(url: str) -> Iterator[tuple[int, str]]:
    """(pid, HTTP address) of a chunker that has all partitions."""
    with Ports(1) as ports:
        http = f"127.0.0.1:{ports.numbers[0]}"
        command = [sys.executable, "-m", "tsdb.cli.main", "chunker", "--log", url, "--http", http]
        child = subprocess.Popen([*command, "--log-level", "error"])
        try:
            give_up_at = time.monotonic() + READY_WITHIN_S
            while len(_state(http)) < PARTITIONS:
                assert time.monotonic() < give_up_at, "the chunker does not get its partitions"
                assert child.poll() is None, "the chunker ended"
                time.sleep(0.2)
            yield child.pid, http
        finally:
            child.terminate()
            child.wait(30.0)


def _state(http: str) -> dict[str, Any]:
    """The state of each partition in `/-/ready`."""
    try:
        with urllib.request.urlopen(f"http://{http}/-/ready", timeout=5.0) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    except OSError:
        return {}
    found: dict[str, Any] = json.loads(body).get("partitions", {})
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
