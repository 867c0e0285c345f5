"""Partition: represents one partition for the store's reads, with its head, its replay progress and its readiness.

The worker writes progress and the watermark poller writes high watermarks. Any thread evaluates readiness, under a
lock. A read checks the states of its partitions together: between two steps of the replay nothing changes, and most
reads find the same states as the read before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_

from tsdb.answer.spec import ReadOptions
from tsdb.answer.state import MemoryState, hole_error
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.head.head import Head, HeadSizes, HeadState
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.model.lag import wire_lag
from tsdb.replay.replay import PartitionProgress
from tsdb.store.readiness import (
    FRESH_S,
    HIGH_WATERMARK_OLD,
    Observation,
    PartitionReadiness,
    ReadinessEvaluator,
    is_stable,
)

LAG_REASONS = ("replaying", "lagging")  # Reasons that come from the lag alone.
# Reasons with which ranges that end before the lag are exact, even without the log.
PAST_REASONS = ("", HIGH_WATERMARK_OLD)


@dataclass(frozen=True, slots=True)
class ReadinessSnapshot:
    """Replay position and readiness of a partition at one moment.

    complete_through_ms: samples before this time are applied, except late ones. None: not known. A sample is late when
    it is acknowledged more than the grace of the time set after its timestamp.
    """

    partition: int
    topic_id: str
    next_offset: int
    high_watermark: int | None
    readiness: PartitionReadiness
    stopped_message: str
    complete_through_ms: int | None = None

    def may_lack(self, end_ms: int | None) -> bool:
        """Whether samples before end_ms may not be applied yet. None: the answer is all that the partition has.

        A partition that replays, or is far behind, may lack late samples of any time that came hours ago.
        """
        if end_ms is None or self.complete_through_ms is None or self.readiness.reason not in PAST_REASONS:
            return True
        return end_ms > self.complete_through_ms

    @property
    def is_behind(self) -> bool:
        """Whether the partition is outside the freshness objective."""
        readiness = self.readiness
        return not readiness.ready or readiness.lag_ms is None or readiness.lag_ms > FRESH_S * 1000

    def warning(self, end_ms: int | None) -> str:
        """A sentence on what an answer up to end_ms may lack; empty within the freshness objective."""
        readiness = self.readiness
        lag_ms = readiness.lag_ms
        if not self.is_behind or not self.may_lack(end_ms):
            return ""
        reason = readiness.reason or "lagging"
        if lag_ms == 0:
            return f"partition {self.partition} is not ready: {reason}; samples acknowledged just now may be missing"
        lag = "unknown" if lag_ms is None else f"{lag_ms} ms"
        return (
            f"partition {self.partition} is behind the log: {reason}, lag {lag}; samples acknowledged within this time"
            " may be missing"
        )

    def check_fresh(self, max_lag_ms: int | None, end_ms: int | None = None) -> None:
        """Raises Unavailable naming partition and lag: not ready, or a lag above max_lag_ms of the request, where an
        answer up to end_ms may lack samples."""
        if not self.may_lack(end_ms):
            return
        readiness = self.readiness
        reason, bound = readiness.reason, ""
        # The request's bound replaces the store's bound on the lag, where the lag is known.
        if max_lag_ms is not None and reason in ("", *LAG_REASONS):
            over = readiness.lag_ms is None or readiness.lag_ms > max_lag_ms
            reason, bound = (reason or "lagging") if over else "", f"; the request allows {max_lag_ms} ms"
        if not reason:
            return
        lag = "unknown" if readiness.lag_ms is None else f"{readiness.lag_ms} ms"
        behind = f"is behind the log: {reason}, lag {lag}, {readiness.lag_records} records"
        state = f"is not ready: {reason}" if readiness.lag_ms == 0 else behind
        raise Unavailable(
            f"partition {self.partition} {state}{bound}"
            + (f"; {self.stopped_message}" if self.stopped_message else ""),
            reason=reason,
            retry_after_s=1.0,
            partition=self.partition,
            lag_ms=readiness.lag_ms,
            lag_records=readiness.lag_records,
        )

    def status(self, state: HeadState, sizes: HeadSizes | None = None) -> StorePartitionStatus:
        """The status with a head state of the same moment or later."""
        return StorePartitionStatus(
            self.partition,
            self.topic_id,
            self.next_offset,
            self.high_watermark,
            self.readiness,
            self.stopped_message,
            self.complete_through_ms,
            state=state,
            sizes=sizes,
        )


@dataclass(frozen=True, kw_only=True)
class StorePartitionStatus(ReadinessSnapshot):
    """A readiness snapshot together with the head's state. sizes: None unless requested."""

    state: HeadState
    sizes: HeadSizes | None = None

    def memory_state(self) -> MemoryState:
        """The state that every answer carries."""
        state, readiness, sizes = self.state, self.readiness, self.sizes
        return MemoryState(
            partition=self.partition,
            topic_id=self.topic_id,
            since_offset=state.since_offset,
            coverage_start_ms=state.coverage_start_ms,
            applied_offset=state.applied_offset,
            next_offset=self.next_offset,
            high_watermark=self.high_watermark or 0,
            lag_records=wire_lag(readiness.lag_records),
            lag_ms=wire_lag(readiness.lag_ms),
            from_start=state.from_start,
            ready=readiness.ready,
            reason=readiness.reason,
            holes=tuple(
                HoleRecord(self.partition, hole.pack_id, hole.start_ms, hole.end_ms, hole.reason, hole.record_offset)
                for hole in state.holes
            ),
            watermark_ms=state.watermark_ms,
            series=sizes.series if sizes else 0,
            samples=sizes.samples if sizes else 0,
            bytes=sizes.bytes if sizes else 0,
        )


class Partition:
    """Combines the observations of worker and poller about one partition. Thread-safe."""

    def __init__(
        self,
        partition: int,
        topic_id: str,
        head: Head,
        progress: PartitionProgress,
        evaluator: ReadinessEvaluator,
        clock: Clock,
        grace_ms: int = 0,
    ) -> None:
        """grace_ms: grace of the time set."""
        self.partition = partition
        self._grace_ms = grace_ms
        self.topic_id = topic_id
        self._clock = clock
        self._evaluator = evaluator
        self._lock = threading.Lock()  # Guards everything below; nothing else is locked under it.
        self._head = head
        self._progress = progress
        self._waiting = self._waiting_message = ""
        self._high_watermark: int | None = None
        self._high_watermark_at = 0.0
        # The last results, because most reads find the same again: `_stable` is valid until it is reset, `_last_memory`
        # for the same snapshot and head state.
        self._stable: ReadinessSnapshot | None = None
        self._last_memory: tuple[ReadinessSnapshot, HeadState, MemoryState] | None = None

    @property
    def head(self) -> Head:
        """The head that answers reads. A fresh start of the replay replaces it."""
        with self._lock:
            return self._head

    @property
    def progress(self) -> PartitionProgress:
        """Replay progress of this partition; its worker changes it."""
        with self._lock:
            return self._progress

    def renew(self, head: Head, progress: PartitionProgress) -> None:
        """Replace the head and its progress after a fresh start of the replay."""
        with self._lock:
            self._head, self._progress = head, progress
            self._stable = None

    def observe_waiting(self, reason: str, message: str = "") -> None:
        """Set the reason why the worker cannot apply records now; empty when it can."""
        with self._lock:
            self._waiting_message = message
            if reason != self._waiting:
                self._waiting = reason
                self._stable = None

    def observe_high_watermark(self, high_watermark: int, at: float) -> None:
        """Set the high watermark that was fetched at monotonic time `at`."""
        with self._lock:
            if high_watermark != self._high_watermark:
                self._stable = None
            self._high_watermark, self._high_watermark_at = high_watermark, at
            # The partition is observed even without reads. Otherwise the first read after an idle stretch would see the
            # lag of the last read.
            self._evaluator.observe(self._progress.next_offset, high_watermark, at)

    def check_going(self) -> None:
        """Raises Unavailable with the reason when this partition will apply no more records."""
        progress = self.progress
        if progress.stopped:
            raise Unavailable(
                f"partition {self.partition} has stopped: {progress.stopped_message}",
                reason=progress.stopped,
                retry_after_s=1.0,
                partition=self.partition,
            )

    def status(self) -> StorePartitionStatus:
        """State, sizes, lag and readiness now."""
        head, snapshot = self.evaluate()
        return snapshot.status(head.state(), head.sizes())

    def memory_state(self, snapshot: ReadinessSnapshot, state: HeadState) -> MemoryState:
        """The state that an answer carries; the last one again when both arguments are the same objects."""
        last = self._last_memory  # Read once: any thread may replace it.
        if last is not None and last[0] is snapshot and last[1] is state:
            return last[2]
        memory = snapshot.status(state).memory_state()
        self._last_memory = snapshot, state, memory
        return memory

    def is_ready(self) -> bool:
        """Whether the partition answers reads now."""
        return self.evaluate()[1].readiness.ready

    def awaits_watermark(self, max_lag_ms: int) -> bool:
        """Whether only the age of the newest high watermark exceeds a bound on the lag: the position has passed that
        high watermark, and a fresh one may show that nothing came since."""
        readiness = self.evaluate()[1].readiness
        return readiness.lag_records is None and readiness.lag_ms is not None and readiness.lag_ms > max_lag_ms

    def evaluate(self) -> tuple[Head, ReadinessSnapshot]:
        """The head to read from, and its readiness before the read."""
        with self._lock:
            head, progress = self._head, self._progress
            monotonic = self._clock.monotonic()
            stable = self._stable
            if (
                stable is not None
                and stable.next_offset == progress.next_offset
                and not progress.stopped
                and monotonic - self._high_watermark_at <= FRESH_S
            ):
                return head, stable
            seen = Observation(
                progress.next_offset,
                progress.applied_broker_ms,
                self._high_watermark,
                self._high_watermark_at,
                progress.stopped or self._waiting,
            )
            now_ms = self._clock.now_ms()
            readiness = self._evaluator.evaluate(seen, now_ms=now_ms, monotonic=monotonic)
            snapshot = ReadinessSnapshot(
                self.partition,
                self.topic_id,
                seen.next_offset,
                seen.high_watermark,
                readiness,
                progress.stopped_message or self._waiting_message,
                None if readiness.lag_ms is None else now_ms - readiness.lag_ms - self._grace_ms,
            )
            self._stable = snapshot if is_stable(readiness) else None
        return head, snapshot


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By default a read accepts neither a lag nor a hole. max_lag_ms: refuse a larger lag; None: the store's bound
    applies.
    """

    allow_stale: bool = False
    allow_holes: bool = False
    max_lag_ms: int | None = None

    @classmethod
    def of(cls, options: ReadOptions, max_lag_ms: int | None = None) -> Tolerance:
        """The tolerance that a read states. max_lag_ms: the server's, for a read without its own."""
        own = options.max_lag_ms
        return cls(options.allow_stale, options.allow_holes, max_lag_ms if own is None else own)

    def check_fresh(self, snapshot: ReadinessSnapshot, end_ms: int | None) -> None:
        """Raises Unavailable when the partition is further behind than an answer up to end_ms accepts. None: the answer
        is all that the partition has."""
        if not self.allow_stale and (snapshot.readiness.reason or self.max_lag_ms is not None):
            snapshot.check_fresh(self.max_lag_ms, end_ms)

    def check_holes(self, states: Iterable[MemoryState], start_ms: int, end_ms: int) -> None:
        """Raises HoleInRange naming the first hole that touches [start_ms, end_ms), unless holes are accepted."""
        if not self.allow_holes:
            for state in states:
                for hole in state.holes_in(start_ms, end_ms):
                    raise hole_error(hole)


@dataclass(frozen=True, slots=True, eq=False)
class ReadStates:
    """states: ascending by partition. behind: snapshots of partitions that an answer may have to warn of.
    complete_from_ms: time from which all partitions are complete; None when all of them have their whole log. holed:
    the states with a hole.
    """

    states: tuple[MemoryState, ...]
    behind: tuple[ReadinessSnapshot, ...]
    complete_from_ms: int | None
    holed: tuple[MemoryState, ...]

    @classmethod
    def of(cls, states: Sequence[MemoryState], snapshots: Sequence[ReadinessSnapshot]) -> ReadStates:
        """One snapshot for each state."""
        starts = [state.coverage_start_ms for state in states if not state.from_start]
        return cls(
            tuple(states),
            tuple([one for one in snapshots if one.is_behind]),
            max(starts, default=None),
            tuple([state for state in states if state.holes]),
        )

    def warnings(self, end_ms: int | None) -> tuple[str, ...]:
        """Sentences on samples that an answer up to end_ms may lack because partitions are behind the log."""
        return tuple(filter(None, (one.warning(end_ms) for one in self.behind))) if self.behind else ()

    def check_coverage(self, start_ms: int) -> None:
        """MemoryState.check_coverage for each partition."""
        if self.complete_from_ms is not None and start_ms < self.complete_from_ms:
            for state in self.states:
                state.check_coverage(start_ms)


class ReadStatesCache:
    """The states of the last read. Thread-safe."""

    def __init__(self) -> None:
        self._last: tuple[list[ReadinessSnapshot], list[HeadState], ReadStates] | None = None

    def of(
        self, partitions: Sequence[Partition], snapshots: list[ReadinessSnapshot], heads: list[HeadState]
    ) -> ReadStates:
        """The states of these partitions: the last ones, if all readiness snapshots and head states are the same
        objects. Equality by identity is enough: the objects are immutable."""
        last = self._last  # Read once: any thread may replace it.
        if (
            last is not None
            and len(last[0]) == len(snapshots)
            and all(map(is_, last[0], snapshots))
            and all(map(is_, last[1], heads))
        ):
            return last[2]
        states = [p.memory_state(one, head) for p, one, head in zip(partitions, snapshots, heads, strict=True)]
        found = ReadStates.of(states, snapshots)
        self._last = snapshots, heads, found
        return found
