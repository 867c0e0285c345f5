"""Loaded marks: decide when `loaded` may be written for partitions that start from zero, or from restored rows.

In a load from zero, a progress marker proves nothing before the ends that `chunks` and `series` had at the start.
Compaction may have removed a chunk or an announcement before the marker, because a later record repeats it. So markers
up to these ends are finished without a write. The highest is kept, and written once everything up to the ends is in
history and committed. The same ends hold all records of jobs that have ended, so nobody reads a history that lacks an
import.

Before `loaded` the index generation is raised, because a querier may have read the index while history lacked series,
and the time of the load is written. The rules of all this are in tsdb.history.claims.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from tsdb.codec.chunk.marker import HoleRecord, ProgressMarker
from tsdb.history.claims import loaded_anew, withdrawn
from tsdb.history.interface import ChunkSink, Loaded, OnDone
from tsdb.history.loader.raises import CHECK_EVERY_S, Raises
from tsdb.log.index_generation import SEEN_AFTER_S, append_generation
from tsdb.log.interface import CHUNKS, SERIES, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.parallel_consumer import PartitionStatus, TopicPartition

log = get_logger(__name__)

JOB_ID = "loader"  # Id of this job in the generations that loaders raise.
NOTHING: Mapping[int, Loaded] = MappingProxyType({})


class GenerationRaise:
    """Raises the index generation for partitions that were loaded anew."""

    def __init__(self, log_: Log, clock: Clock) -> None:
        self._log = log_
        self._clock = clock

    def append(self) -> float:
        """Raise the generation. Returns the monotonic time at which every querier has seen it. Raises the errors of an
        append."""
        append_generation(self._log, JOB_ID)
        return self._clock.monotonic() + SEEN_AFTER_S

    def is_seen(self, seen_at: float) -> bool:
        """Whether that time has come."""
        return self._clock.monotonic() >= seen_at

    def now_ms(self) -> int:
        """Time in ms, as a record of when a partition was loaded."""
        return self._clock.now_ms()


@dataclass(slots=True)
class _FromZero:
    """One partition during its load from zero. end, series_end: high watermarks at the start. begun_at: monotonic
    seconds. first: rows to write before `loaded`, in reverse order: holes and withdrawn claims. marker: the highest
    marker that is not written yet, or position and emitted_through of a restored claim at the start. seen_at: monotonic
    time at which queriers have seen the generation that was raised for this partition; None before it was raised.
    """

    end: int
    series_end: int
    begun_at: float
    first: list[HoleRecord | Loaded] = field(default_factory=list)
    marker: ProgressMarker | None = None
    seen_at: float | None = None
    writing: bool = False


class LoadedMarks:
    """Thread-safe. `write_due` is called repeatedly, from one thread that may wait for history."""

    def __init__(self, store: ChunkSink, raises: Raises, generation: GenerationRaise | None = None) -> None:
        """generation: None where no querier reads this history."""
        self._store = store
        self._raises = raises
        self._generation = generation
        self._checked_at: float | None = None
        self._lock = threading.Lock()  # Guards _from_zero.
        self._from_zero: dict[int, _FromZero] = {}

    def begin(
        self,
        ends: Mapping[int, int],
        holes: Mapping[int, Sequence[HoleRecord]],
        begun_at: float,
        series_ends: Mapping[int, int] | None = None,
        *,
        restored: Mapping[int, Loaded] = NOTHING,
        older: Sequence[Loaded] = (),
    ) -> None:
        """Start these partitions from zero. ends, series_ends: one past the last record of `chunks` and `series` now.
        holes: losses that the load from zero cannot fill. restored: claims of restored rows, true at these ends. older:
        claims of an older copy of history, to be withdrawn."""
        series = series_ends or {}
        with self._lock:
            for partition, end in ends.items():
                way = _FromZero(end, series.get(partition, 0), begun_at, list(holes.get(partition, ())))
                way.first += [withdrawn(one) for one in older if one.partition == partition]
                if partition in restored:
                    way.marker = _marker_of(restored[partition])
                if self._generation is None or not (end or way.series_end or way.first or way.marker):
                    way.seen_at = -math.inf  # History had nothing that a querier could have read without the rest.
                self._from_zero[partition] = way

    def load(self, partition: int, offset: int, marker: ProgressMarker, on_done: OnDone) -> bool:
        """Raise `loaded` to a marker. False: the marker is kept back, and on_done is not called."""
        if self._keep_back(partition, offset, marker):
            return False
        self._raises.add(loaded_of(partition, marker), on_done)
        return True

    @property
    def is_writing(self) -> bool:
        """Whether `write_due` has something to write, now or soon."""
        with self._lock:
            return bool(self._from_zero) or self._raises.is_due

    def from_zero(self, partition: int) -> bool:
        """Whether a partition has not yet reached the end that it had at its start from zero."""
        with self._lock:
            return partition in self._from_zero

    def write_due(self, partitions: Mapping[TopicPartition, PartitionStatus], at: float) -> None:
        """Write holes, kept markers that are proven by now, and other due raises of `loaded`. partitions: the
        consumer's status at `at`, monotonic seconds."""
        due: list[Callable[[], None]] = []
        unseen: list[tuple[int, _FromZero]] = []
        with self._lock:
            for number, way in list(self._from_zero.items()):
                if way.writing:
                    continue
                if way.first:
                    way.writing = True
                    due.append(partial(self._write_first, number, way, way.first[-1]))
                elif not _is_true(number, way, partitions, at):
                    continue
                elif way.marker is None:
                    del self._from_zero[number]
                elif way.seen_at is None:
                    unseen.append((number, way))
                elif self._generation is None or self._generation.is_seen(way.seen_at):
                    way.writing = True
                    loaded = loaded_of(number, way.marker)
                    due.append(partial(self._raises.add, loaded, partial(self._written, number, way)))
        for begin in due:
            begin()
        self._raise_generation(unseen)
        if self._checked_at is None:
            self._checked_at = at
        check = at - self._checked_at >= CHECK_EVERY_S
        if check:
            self._checked_at = at
        self._raises.write_all(check=check)

    def _raise_generation(self, ways: Sequence[tuple[int, _FromZero]]) -> None:
        """Once for all these partitions: the last row of each is in history."""
        if not ways or self._generation is None:
            return
        try:
            seen_at = self._generation.append()
        except TsdbError as error:
            log.warning("index generation not raised; trying again", reason=error.reason, error=error.message)
            return
        now_ms = self._generation.now_ms()
        with self._lock:
            for number, way in ways:
                assert way.marker is not None, "it has a claim to write"
                way.seen_at = seen_at
                way.first.append(loaded_anew(way.marker.topic_id, number, now_ms))

    def _keep_back(self, partition: int, offset: int, marker: ProgressMarker) -> bool:
        with self._lock:
            way = self._from_zero.get(partition)
            if way is None:
                return False
            proves = offset >= way.end and marker.series_end_offset >= way.series_end
            if proves and not way.first and way.seen_at == -math.inf:
                return False
            if way.marker is None or way.marker.position <= marker.position:
                way.marker = marker
            return True

    def _write_first(self, number: int, way: _FromZero, row: HoleRecord | Loaded) -> None:
        on_done = partial(self._first_written, number, way)
        try:
            if isinstance(row, HoleRecord):
                self._store.write_hole(row, on_done)
            else:
                self._store.write_loaded(row, on_done)
        except TsdbError as error:
            on_done(error)

    def _first_written(self, number: int, way: _FromZero, error: TsdbError | None) -> None:
        with self._lock:
            way.writing = False
            if error is None:
                way.first.pop()
        _warn("a row that comes before loaded is", number, error)

    def _written(self, number: int, way: _FromZero, error: TsdbError | None) -> None:
        with self._lock:
            way.writing = False
            if error is None and self._from_zero.get(number) is way:
                del self._from_zero[number]
        _warn("loaded", number, error)


def _marker_of(claim: Loaded) -> ProgressMarker:
    return ProgressMarker(claim.topic_id, claim.position, claim.emitted_through_ms, 0)


def _warn(what: str, number: int, error: TsdbError | None) -> None:
    if error is not None:
        log.warning(f"{what} not written; trying again", partition=number, reason=error.reason, error=error.message)


def loaded_of(partition: int, marker: ProgressMarker) -> Loaded:
    """The value of `loaded` once everything before the marker is in history."""
    return Loaded(marker.topic_id, partition, marker.position, marker.emitted_through_ms)


def _is_true(number: int, way: _FromZero, partitions: Mapping[TopicPartition, PartitionStatus], at: float) -> bool:
    chunks, series = partitions.get((CHUNKS, number)), partitions.get((SERIES, number))
    # A status from before the start belongs to the previous load.
    if at <= way.begun_at or chunks is None or series is None:
        return False
    if way.end > 0 and (chunks.committed is None or chunks.committed < way.end):
        return False
    return series.position >= max(way.series_end, 0 if way.marker is None else way.marker.series_end_offset)
