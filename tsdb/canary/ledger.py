"""Ledger: which writes of this process the gateway acknowledged, as runs of sample times in direct succession."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.canary.layout import RUN_MAX
from tsdb.v1 import common_pb2

# Above this number the oldest are forgotten. A stored sample still proves the RUN_MAX writes before it.
RUNS_MAX = 10_000


@dataclass(slots=True)
class _Run:
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest acknowledged write: its sample time, and the tokens for a read that must include it."""

    ts_ms: int
    tokens: Sequence[common_pb2.Token]


class Ledger:
    """Thread-safe. One thread adds, in ascending order of sample time."""

    def __init__(self, period_ms: int) -> None:
        self._period_ms = period_ms
        self._lock = threading.Lock()  # Guards all below.
        self._runs: deque[_Run] = deque(maxlen=RUNS_MAX)
        self._newest: Newest | None = None
        self._partitions: set[int] = set()

    def run_before(self, ts_ms: int) -> int:
        """Acknowledged writes in direct succession before ts_ms, at most RUN_MAX."""
        with self._lock:
            last = self._runs[-1] if self._runs else None
            if last is None or last.last_ms != ts_ms - self._period_ms:
                return 0
            return min((ts_ms - last.first_ms) // self._period_ms, RUN_MAX)

    def acknowledge(self, ts_ms: int, tokens: Sequence[common_pb2.Token]) -> None:
        """The gateway has acknowledged all samples of this time."""
        with self._lock:
            last = self._runs[-1] if self._runs else None
            if last is not None and last.last_ms == ts_ms - self._period_ms:
                last.last_ms = ts_ms
            else:
                self._runs.append(_Run(ts_ms, ts_ms))
            self._newest = Newest(ts_ms, list(tokens))
            self._partitions.update(token.partition for token in tokens)

    @property
    def newest(self) -> Newest | None:
        """None before the first acknowledged write."""
        with self._lock:
            return self._newest

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions that have samples of the canary."""
        with self._lock:
            return frozenset(self._partitions)

    def acknowledged(self, ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each of these sample times, ascending, whether its write was acknowledged."""
        found = np.zeros(len(ticks), np.bool_)
        with self._lock:
            for run in self._runs:
                first, last = np.searchsorted(ticks, (run.first_ms, run.last_ms + 1))
                found[first:last] = True
        return found
