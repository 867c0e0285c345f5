"""Runs a store in a separate process, over any log: the parts of `tsdb store`, without its refusal of CreateTime
topics.

The child prints one JSON line when it listens and one when every partition is ready. Each line on its stdin requests
its state; it stops when stdin ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.line_process import LineProcess

READY_WITHIN_S = 300.0


class StoreProcess:
    """The parent's side of the process. A context manager, which ends the child on exit."""

    def __init__(self, url: str, *options: str) -> None:
        self.started = time.monotonic()
        self._child = LineProcess("bench.store_process", "--log", url, *options)
        self.address = str(self._child.answer()["address"])

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def wait_ready(self) -> dict[str, Any]:
        """State when all partitions became ready. ready_s: seconds since the child was started; replay_s: since it
        started its store, after imports and kernels."""
        return {"ready_s": 0.0, **self._child.answer()} | {"ready_s": round(time.monotonic() - self.started, 2)}

    def kill(self) -> None:
        """End the child with SIGKILL, without a drain."""
        self._child.kill()

    def state(self) -> dict[str, Any]:
        """State of the child: samples, series, bytes, late and slices of all heads, and cpu_s."""
        return self._child.ask()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.end(20.0)


def serve(argv: Sequence[str]) -> None:
    """Run the child process."""
    # Imported here, so that a parent that uses only StoreProcess does not load them.
    from tsdb.head.state import HeadLimits
    from tsdb.log.interface import METRICS
    from tsdb.log.open import open_log
    from tsdb.model.clock import SystemClock
    from tsdb.model.meta import MetaSettings
    from tsdb.model.time_set import PRODUCTION, slice_lengths
    from tsdb.ops.grpc.health import Health
    from tsdb.ops.grpc.server import GrpcService, build_server
    from tsdb.reader.read_call import SelectLimits
    from tsdb.store.reads import StoreReads
    from tsdb.store.service import ReaderService
    from tsdb.store.snapshots.snapshots import SnapshotOptions
    from tsdb.store.store import Store, StoreOptions
    from tsdb.v1 import reader_pb2_grpc

    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--snapshot-dir", default="")
    parser.add_argument("--snapshot-interval", type=float, default=3600.0)
    arguments = parser.parse_args(argv)
    log = open_log(arguments.log)
    folder = Path(arguments.snapshot_dir) if arguments.snapshot_dir else None
    meta = MetaSettings(log.partitions(METRICS), time_set=PRODUCTION)
    options = StoreOptions(
        time_set=PRODUCTION,
        slices=slice_lengths(PRODUCTION.name),
        hold_ms=PRODUCTION.least_hold_ms,
        limits=HeadLimits(),
        workers=arguments.workers,
        lag_enter_s=5.0,
        lag_leave_s=20.0,
        snapshots=None if folder is None else SnapshotOptions(folder, meta, arguments.snapshot_interval),
    )
    started = time.monotonic()
    store = Store(log, range(log.partitions(METRICS)), options, SystemClock())
    reads = StoreReads(store.topic_id, store.partitions, store.applied, SelectLimits())
    servicer = ReaderService(reads)
    service = GrpcService("tsdb.v1.Reader", servicer, reader_pb2_grpc.add_ReaderServicer_to_server)
    server = build_server([service], host="127.0.0.1", port=0, health=Health())
    store.start()
    server.start()
    _tell({"address": f"127.0.0.1:{server.port}"})
    while not all(status.readiness.ready for status in store.statuses()):
        if (failure := store.failure()) is not None:
            raise failure
        time.sleep(0.02)
    _tell(_state(store) | {"replay_s": round(time.monotonic() - started, 3)})
    while sys.stdin.readline():
        _tell(_state(store))
    server.close()
    store.close()
    store.join(10.0)
    server.abort()
    log.close()


def _state(store: Any) -> dict[str, object]:
    states = [status.sizes for status in store.statuses()]
    names = ("samples", "series", "bytes", "late", "slices")
    return {name: sum(getattr(state, name) for state in states) for name in names} | {"cpu_s": time.process_time()}


def _tell(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1:])
