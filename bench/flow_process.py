"""Flow: a process that writes W(S) into the log at a steady rate, as gateways do: one record for each instance and
scrape.

The child announces its series, prints one line, writes until its stdin ends, and prints its counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

SERIES = 150_000
INTERVAL_S = 1.0  # Time between scrapes: 150 k samples/s.
PACES = 20  # Turns in an interval; each turn writes its share of the instances.
RECORD_SAMPLES = 100  # The samples of one instance.


class Flow:
    """The parent's side: samples flow while the context is open. wrote: the child's counts, set on exit."""

    def __init__(self, url: str, *, series: int = SERIES) -> None:
        command = [sys.executable, "-m", "bench.flow_process", "--log", url, "--series", str(series)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.wrote: dict[str, Any] = {}
        assert self._child.stdout is not None
        if not self._child.stdout.readline():
            raise RuntimeError(f"the flow ended with code {self._child.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out, _ = self._child.communicate(timeout=60.0)
        if self._child.returncode == 0:
            self.wrote = json.loads(out.splitlines()[-1])


def serve(argv: Sequence[str]) -> None:
    """Run the child process."""
    from bench.ground import FILL_SETTINGS, Appends, announce
    from bench.workload import Workload
    from tsdb.log.interface import METRICS
    from tsdb.log.open import open_log

    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--series", type=int, default=SERIES)
    arguments = parser.parse_args(argv)
    ended = threading.Event()
    threading.Thread(target=_at_end_of_stdin, args=(ended,), daemon=True).start()
    with open_log(arguments.log, settings=FILL_SETTINGS) as log:
        workload = Workload(arguments.series, log.partitions(METRICS), samples=16, job="flow")
        announce(log, workload, int(time.time() * 1000))
        print("flows", flush=True)
        pending, started, samples, turn = Appends(log), time.monotonic(), 0, 0
        parts = [_cut(workload, number) for number in range(PACES)]
        while not ended.wait(max(0.0, started + turn * INTERVAL_S / PACES - time.monotonic())):
            ts_ms = int(time.time() * 1000)
            for share in parts[turn % PACES]:
                for record in workload.record(share, ts_ms, turn, RECORD_SAMPLES):
                    pending.add(METRICS, share.partition, record, timestamp_ms=ts_ms)
                samples += len(share.rows)
            turn += 1
        seconds = time.monotonic() - started
        pending.wait()
    rate = round(samples / seconds)
    print(json.dumps({"samples": samples, "seconds": round(seconds, 1), "rate": rate, "records": pending.count}))


def _at_end_of_stdin(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _cut(workload: Any, number: int) -> list[Any]:
    """Share `number` of PACES of the packs of each partition."""
    return [part for share in workload.shares if (part := share.part(number, PACES)) is not None]


if __name__ == "__main__":
    serve(sys.argv[1:])
