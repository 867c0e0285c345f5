"""Stage metrics: one family for the chunk stage, moved by the engine that runs it.

The Python chunker and the Spark pipeline show the same names. The label `engine` is `python` or `spark`, so alerts and
dashboards need no knowledge of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.chunks.engine import Engine
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage import Emission
from tsdb.ops.metrics import counter, gauge

KINDS = ("base", "late")
RESULTS = ("emitted", "empty", "not_whole")
_PARTITION = ("engine", "partition")

ready = gauge(
    "tsdb_chunk_stage_partition_ready",
    "1 when the partition is assigned to this process and keeps up, else 0.",
    label=_PARTITION,
)
lag_records = gauge(
    "tsdb_chunk_stage_lag_records",
    "High watermark minus committed position; absent while it is not known.",
    label=_PARTITION,
)
position = gauge("tsdb_chunk_stage_position", "Committed position.", label=_PARTITION)
emitted_through = gauge(
    "tsdb_chunk_stage_emitted_through_timestamp_seconds",
    "Windows that end by this sample time are emitted and committed.",
    label=_PARTITION,
)
overdue = gauge(
    "tsdb_chunk_stage_windows_overdue",
    "Windows that should be emitted by now and are not: past their grace and, for the Python engine, the spread.",
    label=_PARTITION,
)
last_commit = gauge(
    "tsdb_chunk_stage_last_commit_timestamp_seconds",
    "When this process last committed progress; before its first commit, when it began the partition.",
    label=_PARTITION,
)
commits_total = counter("tsdb_chunk_stage_commits_total", "Commits of progress, tried.", label="engine")
commit_failures_total = counter(
    "tsdb_chunk_stage_commit_failures_total",
    "Commits, or the markers before them, that failed, by reason; tried again.",
    label=("engine", "reason"),
)
chunks_total = counter("tsdb_chunk_stage_chunks_total", "Chunk records made, by kind.", label=("engine", "kind"))
bytes_total = counter("tsdb_chunk_stage_bytes_total", "Bytes of chunk records made, keys included.", label="engine")
samples_total = counter(
    "tsdb_chunk_stage_samples_total",
    "Samples in chunk records made, by kind. Late samples arrived after their window had closed.",
    label=("engine", "kind"),
)
windows_total = counter("tsdb_chunk_stage_windows_total", "Windows finished, by result.", label=("engine", "result"))
holes_total = counter("tsdb_chunk_stage_holes_total", "Losses found in the log and written as holes.", label="engine")
appends_total = counter(
    "tsdb_chunk_stage_appends_total", "Records sent to the chunks topic, repeats included.", label="engine"
)
append_failures_total = counter(
    "tsdb_chunk_stage_append_failures_total",
    "Failed appends to the chunks topic, by reason; sent again unless the error is final.",
    label=("engine", "reason"),
)
ticks_total = counter("tsdb_chunk_stage_ticks_total", "Ticks appended to idle partitions.", label="engine")
tick_failures_total = counter(
    "tsdb_chunk_stage_tick_failures_total", "Ticks that were not acknowledged, tried again.", label="engine"
)


@dataclass(frozen=True, slots=True)
class StagePlace:
    """State of one partition, as its engine sees it. None: not known yet."""

    partition: int
    ready: bool
    lag_records: int | None
    progress: Progress | None
    windows_overdue: int | None


class StageMetrics:
    """The metrics of one engine. Counters without a reason show 0 from the start."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Engine = engine
        self.last_commit_ms: dict[int, int] = {}
        """Time of the last commit by partition, as the gauge shows it."""
        self.chunks = {kind: chunks_total.labels(engine, kind) for kind in KINDS}
        self.samples = {kind: samples_total.labels(engine, kind) for kind in KINDS}
        self.windows = {result: windows_total.labels(engine, result) for result in RESULTS}
        self.bytes = bytes_total.labels(engine)
        self.holes = holes_total.labels(engine)
        self.commits = commits_total.labels(engine)
        self.appends = appends_total.labels(engine)
        self.ticks = ticks_total.labels(engine)
        self.tick_failures = tick_failures_total.labels(engine)

    def commit_failed(self, reason: str) -> None:
        commit_failures_total.labels(self.engine, reason).inc()

    def append_sent(self) -> None:
        self.appends.inc()

    def append_failed(self, reason: str, times: int = 1) -> None:
        append_failures_total.labels(self.engine, reason).inc(times)

    def committed(self, partition: int, at_ms: int) -> None:
        """Progress of a partition was committed, or the partition was begun, at_ms since the epoch."""
        self.last_commit_ms[partition] = at_ms
        last_commit.labels(self.engine, str(partition)).set(at_ms / 1000)

    def show(self, place: StagePlace) -> None:
        """Set the gauges of one partition."""
        labels = self.engine, str(place.partition)
        ready.labels(*labels).set(place.ready)
        if place.lag_records is None:
            lag_records.remove(*labels)
        else:
            lag_records.labels(*labels).set(place.lag_records)
        if place.progress is not None:
            position.labels(*labels).set(place.progress.position)
            emitted_through.labels(*labels).set(place.progress.emitted_through_ms / 1000)
        if place.windows_overdue is not None:
            overdue.labels(*labels).set(place.windows_overdue)

    def forget(self, partition: int) -> None:
        """The partition was given up. Its next owner shows the progress; two values for it would contradict."""
        labels = self.engine, str(partition)
        self.last_commit_ms.pop(partition, None)
        ready.labels(*labels).set(0)
        for metric in (lag_records, position, emitted_through, overdue, last_commit):
            metric.remove(*labels)

    def count(self, emission: Emission) -> None:
        """Count one finished emission."""
        self.holes.inc(emission.holes)
        if emission.minutes or emission.base is not None:
            kind = "late" if emission.minutes else "base"
            self.chunks[kind].inc(len(emission.records))
            self.samples[kind].inc(emission.samples)
            self.bytes.inc(sum(record.size for record in emission.records))
        self.windows["not_whole"].inc(emission.not_whole)
        self.windows["empty"].inc(emission.empty)
        self.windows["emitted"].inc(emission.windows - emission.not_whole - emission.empty)
