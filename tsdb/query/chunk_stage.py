"""Chunk stage: observes its engine, progress and lag in the log, for a process that does not run it.

An engine that has ended has no metrics. So the querier reads the members and commits of the group, and its metrics show
when no engine runs the chunk stage, or when it makes no progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tsdb.chunks.engine import ENGINES, GROUP_ID, Engine, engine_of, windows_overdue
from tsdb.chunks.progress import Progress, decode_commit
from tsdb.log.interface import METRICS, Group, Log, Position
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.model.lag import wire_lag
from tsdb.model.time_set import TimeSet
from tsdb.model.window import floor_to
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.periodic import Periodic
from tsdb.v1 import reader_pb2

EVERY_S = 5.0
SIGHT_MS_MAX = 15_000  # Above this age of the last look a lag of 0 is not known any more.
UNKNOWN = "unknown"  # Engine of a member that is not a chunk stage of this version.

log = get_logger(__name__)

members_count = gauge(
    "tsdb_query_chunk_stage_members",
    "Members of the chunk stage's group, by engine; unknown: another client.",
    label="engine",
    values=(*ENGINES, UNKNOWN),
)
lag_records = gauge(
    "tsdb_query_chunk_stage_lag_records",
    "High watermark minus the position that the chunk stage has committed; -1 while it is not known.",
    label="partition",
)
overdue = gauge(
    "tsdb_query_chunk_stage_windows_overdue",
    "Windows that the chunk stage should have emitted by now and has not; without a commit, since the querier began.",
    label="partition",
)
emitted_through = gauge(
    "tsdb_query_chunk_stage_emitted_through_timestamp_seconds",
    "Windows that end by this sample time are emitted and committed.",
    label="partition",
)
looks_total = counter("tsdb_query_chunk_stage_looks_total", "Looks at members and commits of the chunk stage's group.")
look_failures_total = counter(
    "tsdb_query_chunk_stage_look_failures_total", "Looks that failed, by reason; values stay as they were.", "reason"
)


@dataclass(frozen=True, slots=True)
class StageSight:
    """One observation. clients: client ids of the group's members. committed: progress by partition; None without a
    usable commit. highs: high watermarks by partition.
    """

    at_ms: int
    clients: tuple[str, ...]
    committed: Mapping[int, Progress | None]
    highs: Mapping[int, int]

    @property
    def engines(self) -> Counter[str]:
        """Number of members by engine."""
        return Counter(engine_of(client) or UNKNOWN for client in self.clients)

    @property
    def engine(self) -> Engine | None:
        """The engine, if all members agree."""
        found = {engine_of(client) for client in self.clients}
        return found.pop() if len(found) == 1 else None


class ChunkStageWatch(Periodic):
    """Owns one thread and, on it, one connection to the group's coordinator. Never joins the group."""

    def __init__(self, log_: Log, times: TimeSet, clock: Clock) -> None:
        super().__init__("chunk-stage-watch", EVERY_S, self.look)
        self._log = log_
        self._times = times
        self._clock = clock
        self._group: Group | None = None
        # Windows count from here on while the group has no commit.
        self._begun_ms = floor_to(clock.now_ms(), times.window_ms)
        self._sight: StageSight | None = None
        self._changed_ms: int | None = None

    def join(self, timeout_s: float) -> bool:
        if not super().join(timeout_s):
            return False
        if self._group is not None:
            self._group.leave()
        return True

    def look(self) -> None:
        """Look once and set the metrics. A look that fails leaves the last one."""
        looks_total.inc()
        try:
            sight = self._see()
        except TsdbError as error:
            look_failures_total.labels(error.reason).inc()
            log.debug("chunk stage not seen", reason=error.reason, error=error.message)
            if self._sight is not None:
                self._show_lag(self._sight)
            return
        before, self._sight = self._sight, sight
        if before is not None and before.committed != sight.committed:
            self._changed_ms = sight.at_ms
        self._show(sight)

    def state(self) -> reader_pb2.ChunkStageState | None:
        """The last observation, for the wire; None before the first. Any thread may call it."""
        sight = self._sight
        if sight is None:
            return None
        through = [progress.emitted_through_ms for progress in sight.committed.values() if progress is not None]
        return reader_pb2.ChunkStageState(
            engines=sorted(sight.engines),
            members=len(sight.clients),
            lag_records=wire_lag(_sum(self._known_lag(sight, partition) for partition in sight.committed)),
            windows_overdue=sum(self._overdue(sight, partition) for partition in sight.committed),
            emitted_through_ms=min(through) if len(through) == len(sight.committed) else None,
            last_commit_ms=self._changed_ms,
            as_of_ms=sight.at_ms,
        )

    def _see(self) -> StageSight:
        partitions = range(self._log.partitions(METRICS))
        if self._group is None:
            self._group = self._log.group(GROUP_ID)
        commits = self._group.committed([(METRICS, partition) for partition in partitions])
        return StageSight(
            self._clock.now_ms(),
            tuple(self._log.members(GROUP_ID)),
            {partition: self._progress(commits[METRICS, partition]) for partition in partitions},
            self._log.high_watermarks(METRICS, partitions),
        )

    def _progress(self, commit: Position | None) -> Progress | None:
        """The progress in a commit. None for a commit that no engine can use, which counts as no commit."""
        if commit is None:
            return None
        try:
            return decode_commit(commit.next_offset, commit.metadata, self._log.topic_id(METRICS))
        except TsdbError:
            return None

    def _show(self, sight: StageSight) -> None:
        self._show_lag(sight)
        engines = sight.engines
        for engine in (*ENGINES, UNKNOWN):
            members_count.labels(engine).set(engines[engine])
        for partition, progress in sight.committed.items():
            overdue.labels(str(partition)).set(self._overdue(sight, partition))
            if progress is not None:
                emitted_through.labels(str(partition)).set(progress.emitted_through_ms / 1000)

    def _show_lag(self, sight: StageSight) -> None:
        for partition in sight.committed:
            lag = self._known_lag(sight, partition)
            lag_records.labels(str(partition)).set(-1 if lag is None else lag)

    def _known_lag(self, sight: StageSight, partition: int) -> int | None:
        """The lag of a partition. None for a lag of 0 that was seen some time ago, because records may have come
        since."""
        lag = self._lag(sight, partition)
        return lag if lag > 0 or self._clock.now_ms() - sight.at_ms <= SIGHT_MS_MAX else None

    def _lag(self, sight: StageSight, partition: int) -> int:
        progress = sight.committed[partition]
        return sight.highs[partition] - (progress.position if progress else 0)

    def _overdue(self, sight: StageSight, partition: int) -> int:
        progress = sight.committed[partition]
        through_ms = progress.emitted_through_ms if progress else self._begun_ms
        return windows_overdue(through_ms, sight.at_ms, self._times, sight.engine)


def _sum(lags: Iterable[int | None]) -> int | None:
    """The sum. None when one of the lags is not known."""
    found = list(lags)
    return None if None in found else sum(lag for lag in found if lag is not None)
