"""Reporter: publishes every partition's status to gRPC health, metrics and the log: within half a second of a change,
and every five seconds, because reads change the size of caches.

Readiness over HTTP reads the same statuses at the time of the probe.
"""

from __future__ import annotations

from collections.abc import Callable

from tsdb.head.state import HeadSizes, HeadState
from tsdb.model.clock import Clock
from tsdb.ops.health import PartitionHealth
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import gauge
from tsdb.ops.periodic import Periodic
from tsdb.replay.replay import PartitionProgress
from tsdb.store.partition import Partition, ReadinessSnapshot, StorePartitionStatus
from tsdb.store.store import Store

EVERY_S = 0.5
ALL_EVERY_S = 5.0

log = get_logger(__name__)

ready = gauge("tsdb_store_partition_ready", "1 when the partition answers reads, else 0.", label="partition")
lag_records = gauge(
    "tsdb_store_lag_records", "High watermark minus next offset; -1 while it is not known.", label="partition"
)
lag_seconds = gauge("tsdb_store_lag_seconds", "Lag in time; -1 while it is not known.", label="partition")
applied_offset = gauge(
    "tsdb_store_applied_offset", "Last record visible to reads; -1 before the first.", label="partition"
)
coverage_start = gauge(
    "tsdb_store_coverage_start_timestamp_seconds",
    "Sample time from which the partition is complete in memory.",
    label="partition",
)
series = gauge("tsdb_store_series", "Series in the label index.", label="partition")
samples = gauge("tsdb_store_samples", "Samples held, late list included.", label="partition")
memory = gauge("tsdb_store_head_bytes", "Memory of slices, late list, label index and caches.", label="partition")
memory_max = gauge(
    "tsdb_store_head_bytes_max",
    "Limit of that memory, an equal share of memory_hard_bytes; at it the partition applies nothing more.",
    label="partition",
)
index_memory = gauge(
    "tsdb_store_index_bytes", "Memory of the label index, part of tsdb_store_head_bytes.", label="partition"
)
late = gauge("tsdb_store_late_samples", "Samples in the late list.", label="partition")
slices = gauge("tsdb_store_sealed_slices", "Sealed slices held.", label="partition")
sealed_samples = gauge("tsdb_store_sealed_samples", "Samples in sealed slices.", label="partition")
sealed_bytes = gauge("tsdb_store_sealed_bytes", "Memory of sealed slices, directories included.", label="partition")
exemplars = gauge("tsdb_store_exemplars", "Exemplars in memory.", label="partition")
holes = gauge("tsdb_store_holes", "Holes in the data in memory.", label="partition")


class StoreReporter(Periodic):
    """Owns one thread. `set_health(partition, serving)`: partition None means the whole store."""

    def __init__(self, store: Store, set_health: Callable[[int | None, bool], None], clock: Clock) -> None:
        super().__init__("reporter", EVERY_S, self._update)
        self._store = store
        self._set_health = set_health
        self._clock = clock
        self._ready: dict[int, bool] = {}
        self._shown: dict[int, tuple[ReadinessSnapshot, HeadState, HeadSizes]] = {}
        self._progress_at = clock.monotonic()
        self._records = 0

    def _update(self) -> None:
        for_all = not self._shown or self._clock.monotonic() - self._progress_at >= ALL_EVERY_S
        statuses = [
            status
            for partition in self._store.partitions.values()
            if (status := self._status(partition, even_unchanged=for_all)) is not None
        ]
        for status in statuses:
            _set_gauges(status)
            memory_max.labels(str(status.partition)).set(self._store.memory_hard_bytes)
            self._note_change(status)
            self._set_health(status.partition, status.readiness.ready)
        if statuses:
            self._set_health(None, all(self._ready.values()))
        if for_all:
            self._log_progress(statuses)

    def _status(self, partition: Partition, *, even_unchanged: bool) -> StorePartitionStatus | None:
        """The status now; None where readiness and head are as they were shown."""
        head, readiness = partition.evaluate()
        state = head.state()
        shown = self._shown.get(partition.partition)
        if even_unchanged or shown is None or shown[1] is not state:
            sizes = head.sizes()
        elif shown[0] is not readiness:
            sizes = shown[2]  # The sum over all slices and parts of the index for the same state.
        else:
            return None
        self._shown[partition.partition] = readiness, state, sizes
        return readiness.status(state, sizes)

    def _note_change(self, status: StorePartitionStatus) -> None:
        before = self._ready.get(status.partition)
        if before == status.readiness.ready:
            return
        self._ready[status.partition] = status.readiness.ready
        if status.readiness.ready:
            log.info("partition ready", partition=status.partition, applied_offset=status.state.applied_offset)
        elif before is not None:
            log.warning(
                "partition not ready",
                partition=status.partition,
                reason=status.readiness.reason,
                lag_ms=status.readiness.lag_ms,
                lag_records=status.readiness.lag_records,
            )

    def _log_progress(self, statuses: list[StorePartitionStatus]) -> None:
        """While a partition replays: records applied, rate and time left."""
        now = self._clock.monotonic()
        done = [self._store.partitions[status.partition].progress for status in statuses]
        records = sum(progress.records for progress in done)
        # After a fresh start the count begins at zero again.
        rate = max(0, records - self._records) / (now - self._progress_at)
        self._records, self._progress_at = records, now
        left = sum(status.readiness.lag_records or 0 for status in statuses)
        if all(status.readiness.ready for status in statuses):
            return
        log.info(
            "replaying",
            records=records,
            samples=_samples(done),
            records_per_second=round(rate),
            records_left=left,
            seconds_left=round(left / rate) if rate else None,
        )


def partition_health(status: StorePartitionStatus) -> PartitionHealth:
    """The status in the form of `/-/ready`."""
    return PartitionHealth(
        status.readiness.ready,
        status.readiness.reason,
        {
            "lag_ms": status.readiness.lag_ms,
            "lag_records": status.readiness.lag_records,
            "next_offset": status.next_offset,
            "high_watermark": status.high_watermark,
            "coverage_start_ms": status.state.coverage_start_ms,
            "message": status.stopped_message or None,
        },
    )


def _samples(done: list[PartitionProgress]) -> int:
    return sum(progress.samples for progress in done)


def _set_gauges(status: StorePartitionStatus) -> None:
    name, state, sizes, readiness = str(status.partition), status.state, status.sizes, status.readiness
    assert sizes is not None, "the status has no sizes"
    ready.labels(name).set(readiness.ready)
    lag_records.labels(name).set(-1 if readiness.lag_records is None else readiness.lag_records)
    lag_seconds.labels(name).set(-1 if readiness.lag_ms is None else readiness.lag_ms / 1000)
    applied_offset.labels(name).set(-1 if state.applied_offset is None else state.applied_offset)
    coverage_start.labels(name).set(state.coverage_start_ms / 1000)
    series.labels(name).set(sizes.series)
    samples.labels(name).set(sizes.samples)
    memory.labels(name).set(sizes.bytes)
    index_memory.labels(name).set(sizes.index_bytes)
    late.labels(name).set(sizes.late)
    slices.labels(name).set(sizes.slices)
    sealed_samples.labels(name).set(sizes.sealed_samples)
    sealed_bytes.labels(name).set(sizes.sealed_bytes)
    exemplars.labels(name).set(sizes.exemplars)
    holes.labels(name).set(len(state.holes))
