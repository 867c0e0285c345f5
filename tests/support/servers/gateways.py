"""A pipeline over a fake log and a clock that stands still, and requests for it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.limits import IngestLimits
from ingest.pipeline import AcceptedWrite, WritePipeline
from ingest.rows import make_rows
from support.fakes.fake_log import FakeLog
from support.fakes.manual_timer import ManualTimer
from tsdb.model.clock import ManualClock
from tsdb.model.labels import canonical_labels
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION, TimeSet
from tsdb.ops.lifecycle import Deadline

NOW_MS = 1_700_000_000_000
PARTITIONS = 4


def label_set(number: int, *, name: str = "m", instance: int = 0) -> bytes:
    """Canonical labels of one of many series. Series of one instance share a partition, and series of one
    name a pack.
    """
    return canonical_labels({"__name__": name, "job": "j", "instance": f"i{instance}", "n": str(number)})


@dataclass
class Bench:
    """Gateway, log and clock for a test of the write path. `write` gives each series one sample by default.

    manual_timer: waits end when the test fires `timer`, and not on a thread.
    """

    time_set: TimeSet = PRODUCTION
    limits: IngestLimits = field(default_factory=IngestLimits)
    partitions: int = PARTITIONS
    manual_timer: bool = False

    def __post_init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.log = FakeLog(self.partitions, self.clock)
        self.timer = ManualTimer(self.clock)
        self.pipeline = self.restart()

    def restart(self) -> WritePipeline:
        """A new gateway without any state over the same log, as after a kill."""
        self.pipeline = WritePipeline(
            self.log,
            PlacementRule(),
            self.partitions,
            self.time_set,
            self.limits,
            self.clock,
            timer=self.timer if self.manual_timer else None,
        )
        return self.pipeline

    def write(
        self,
        labels: Sequence[bytes],
        *,
        ts_ms: Sequence[int] | None = None,
        values: Sequence[float] | NDArray[np.float64] | None = None,
        counts: Sequence[int] | None = None,
        partial: bool = False,
        timeout_s: float = 10.0,
    ) -> AcceptedWrite:
        """One request with the present time. Values count up from 0."""
        return self.submit(
            labels, ts_ms=ts_ms, values=values, counts=counts, partial=partial, timeout_s=timeout_s
        ).result()

    def submit(
        self,
        labels: Sequence[bytes],
        *,
        ts_ms: Sequence[int] | None = None,
        values: Sequence[float] | NDArray[np.float64] | None = None,
        counts: Sequence[int] | None = None,
        partial: bool = False,
        timeout_s: float = 10.0,
    ) -> Future[AcceptedWrite]:
        """Begin a write. The Future gets its answer."""
        times = np.full(len(labels), self.clock.now_ms()) if ts_ms is None else np.array(ts_ms, np.int64)
        rows = make_rows(
            labels,
            None if counts is None else np.array(counts, np.uint32),
            times.astype(np.int64),
            np.arange(len(times), dtype=np.float64) if values is None else np.array(values, np.float64),
        )
        return self.pipeline.submit(rows, partial, Deadline.after(timeout_s))
