"""Keeper: follows `chunks` and keeps the table, one snapshot an emission, beside a loader and without waiting for it.

The position is in the table itself: each snapshot names the offsets up to which it has every record, and is committed
only on top of the snapshot that the keeper read. So each record is in the table once, after a kill at any point, after
a retry, and beside a second keeper. One thread, `tables`.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tsdb.codec.chunk.chunk import Fragment, decode_chunk
from tsdb.codec.chunk.key import ChunkKey, HoleKey, ProgressKey, WindowKey, decode_key
from tsdb.codec.chunk.marker import HoleRecord, decode_hole, decode_progress_marker
from tsdb.history.iceberg.catalog import (
    CONFLICT,
    DIFFERS,
    TableSettings,
    create_table,
    load_table,
    open_catalog,
    publish,
    series_table,
    translate_table_errors,
)
from tsdb.history.iceberg.emission import Emitted, emit, is_conflict
from tsdb.history.iceberg.labels import AnnouncedLabels
from tsdb.history.iceberg.series import write_series, written_offsets
from tsdb.history.iceberg.state import HOLES_MAX, LogCut, TableState, table_state
from tsdb.history.loader.loss import loss_at
from tsdb.log.interface import CHUNKS, METRICS, EndOfLog, Log, LogReader, LogRecord
from tsdb.model import defaults
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, CorruptData, TsdbError, Unavailable, worth_retrying
from tsdb.model.time_set import TimeSet
from tsdb.model.times import DAY_MS
from tsdb.model.window import LONG_AGO_MS
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge, histogram
from tsdb.ops.threads import ThreadComponent

LAG_EVERY_S = 15.0
IDLE_POLL_S = 30.0  # A poll returns with the first record, and at `close`.
POLL_RECORDS_MAX = 256
SAMPLES_MAX = 2_000_000  # Decoded samples that wait for a commit take 24 bytes each, and their rows as much again.
SERIES_WITHIN_S = 60.0
RETRY_S, REFUSED_RETRY_S = 5.0, 60.0
REWRITES_MAX = 5  # Commits of compactions in a row that one emission is tried again after.
STAND_BY_INTERVALS = 3  # Intervals without a commit of the other keeper, after which this one goes on.
TRIMMED, OTHER_LOG = "chunks_trimmed", "tables_other_log"
# Samples outside the years 1 to 9999 have no timestamp in readers.
FIRST_MS, END_MS = -62_135_596_800_000, 253_402_300_800_000

log = get_logger(__name__)

commits_total = counter("tsdb_tables_commits_total", "Snapshots committed to the Iceberg table, one an emission.")
failures_total = counter(
    "tsdb_tables_failures_total",
    "Steps of the table's keeper that failed, by reason; each is tried again. tables_conflict: another keeper was"
    " first.",
    label="reason",
)
samples_total = counter(
    "tsdb_tables_samples_total",
    "Samples given to the table, by kind: added, repeated (it had them), replaced (older versions taken out).",
    label="kind",
    values=("added", "repeated", "replaced"),
)
series_total = counter("tsdb_tables_series_total", "Rows added to the table of series, one a series and index epoch.")
unlabelled_total = counter(
    "tsdb_tables_unlabelled_samples_total", "Samples added without labels: their series is not on the series topic."
)
holes_total = counter(
    "tsdb_tables_holes_total",
    "Losses noted in the table, by reason, the losses that `chunks` names too.",
    label="reason",
)
files_total = counter(
    "tsdb_tables_files_total", "Files of commits, by kind.", label="kind", values=("added", "replaced")
)
commit_seconds = histogram("tsdb_tables_commit_duration_seconds", "Time of an emission: rows, files and commit.")
emitted_timestamp = gauge("tsdb_tables_commit_timestamp_seconds", "Time of the last commit of this process.")
lag_records = gauge("tsdb_tables_lag_records", "Records of `chunks` that the table does not have yet.")
failing = gauge(
    "tsdb_tables_failing", "1 while the table's keeper fails and tries again; 0 while it keeps it or stands by."
)


@dataclass(frozen=True, slots=True)
class KeeperOptions:
    """interval_s: from the first record that waits to the commit. time_set: the log's. create_buckets: metric buckets
    of the table that the keeper creates if it is missing; None: a missing table is an error. labels_bytes_max: bound of
    the memory for labels. shared: settings that readers of the table compare with theirs."""

    table: TableSettings
    time_set: TimeSet
    interval_s: float = 60.0
    create_buckets: int | None = None
    labels_bytes_max: int = defaults.TABLES_LABELS_BYTES_MAX
    shared: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Waiting:
    """Records read and not yet in the table. since: monotonic time of the first of them that changes the table."""

    next_offsets: dict[int, int]
    fragments: list[Fragment] = field(default_factory=list)
    cut: dict[int, LogCut] = field(default_factory=dict)
    holes: list[HoleRecord] = field(default_factory=list)
    samples: int = 0
    since: float | None = None


class TableKeeper(ThreadComponent):
    """Component of a process with a loader. The caller closes the log after it."""

    def __init__(self, log_: Log, options: KeeperOptions, clock: Clock) -> None:
        super().__init__("tables")
        if DAY_MS % options.time_set.window_ms:
            raise ConfigMismatch(
                f"windows of {options.time_set.window_ms} ms do not divide a day, and the table has a file a day",
                reason="tables_window",
            )
        self._log = log_
        self._options = options
        self._clock = clock
        self._id = uuid.uuid4().hex
        self._follower: _Follower | None = None
        self._problem: TsdbError | None = None
        self._beaten_by: int | None = None  # Last emission of another keeper that came first.

    def close(self) -> None:
        """Stop reading. Records that wait are not committed; the next start reads them again."""
        super().close()
        follower = self._follower
        if follower is not None:
            follower.wake()

    def problem(self) -> TsdbError | None:
        """The error that the last step met; None while the table is kept."""
        return self._problem

    def not_kept(self) -> tuple[str, str]:
        """Reason and message for readiness; empty while the table is kept, or another keeper keeps it."""
        error = self._problem
        return ("", "") if error is None or is_conflict(error) else (error.reason, error.message)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    self._step()
                    self._problem = None
                    failing.set(0)
                except TsdbError as error:
                    self._rest(error)
        finally:
            self._forget()

    def _step(self) -> None:
        if self._follower is None:
            self._follower = _Follower(self._log, self._options, self._clock, self._id)
            self._stand_by(self._follower.found)
        self._follower.step(self._closing.is_set)

    def _stand_by(self, found: TableState | None) -> None:
        """Raises Unavailable (tables_conflict) while another keeper, which was first before, goes on committing."""
        before, self._beaten_by = self._beaten_by, None
        if before is not None and found is not None and found.keeper != self._id and found.emission > before:
            self._beaten_by = found.emission
            raise _conflict(self._options.table.name)

    def _rest(self, error: TsdbError) -> None:
        """Begin again from what the table says, after a while. History is loaded meanwhile."""
        failures_total.labels(error.reason).inc()
        if self._problem is None or self._problem.reason != error.reason:
            log.warning("table not kept; trying again", reason=error.reason, error=error.message)
        self._problem = error
        failing.set(not is_conflict(error))
        if is_conflict(error):
            if self._follower is not None and self._beaten_by is None:
                self._beaten_by = self._follower.emission
            wait_s = self._options.interval_s * STAND_BY_INTERVALS
        else:
            wait_s = RETRY_S if worth_retrying(error) else REFUSED_RETRY_S
        self._forget()
        self._closing.wait(wait_s)

    def _forget(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()


class _Follower:
    """One attempt: the table as it was loaded, and the readers from there on. An error ends it."""

    def __init__(self, log_: Log, options: KeeperOptions, clock: Clock, keeper: str) -> None:
        self._log = log_
        self._options = options
        self._clock = clock
        self._catalog: Catalog = open_catalog(options.table)
        self._reader: LogReader | None = None
        self._labels: AnnouncedLabels | None = None
        try:
            if options.create_buckets is not None:
                create_table(self._catalog, options.table.name, options.create_buckets, options.table.location)
            self._table: Table = self._loaded()
            series = self._series()
            with translate_table_errors(f"table {options.table.name}"):
                # A kill may have come between a commit and its publication.
                publish(self._table)
                publish(series)
            self.found = table_state(self._table)  # State of the table; _state is equal, or begins a new table.
            self._state = self._first_state(keeper)
            partitions = sorted(self._state.next_offsets)
            # A chunk whose record compaction removed comes again further on, until the end of now. No cut is true
            # before that.
            self._proven_from = log_.high_watermarks(CHUNKS, partitions)
            self._labels = AnnouncedLabels(log_, partitions, written_offsets(series), options.labels_bytes_max)
            self._reader = log_.reader({(CHUNKS, number): at for number, at in self._state.next_offsets.items()})
        except BaseException:
            self.close()
            raise
        self._markers: dict[int, LogCut] = {}  # The last one read of each partition.
        self._lag_at = -math.inf
        self._waiting = _Waiting(dict(self._state.next_offsets), holes=self._new_holes)
        if self._new_holes:
            self._waiting.since = clock.monotonic()

    def _loaded(self) -> Table:
        where = self._options.table
        table = load_table(self._catalog, where.name)
        if where.location and table.location() != where.location:
            raise ConfigMismatch(
                f"table {where.name} lies in {table.location()}, and history is read from {where.location}: give"
                " another tables_name, or the history that the table is",
                reason=DIFFERS,
            )
        return table

    def _series(self) -> Table:
        return series_table(self._catalog, self._table, self._options.shared)

    @property
    def emission(self) -> int:
        """Number of the last emission that this attempt knows."""
        return self._state.emission

    def _first_state(self, keeper: str) -> TableState:
        topic_id, chunks_id = self._log.topic_id(METRICS), self._log.topic_id(CHUNKS)
        self._new_holes: list[HoleRecord] = []
        found = self.found
        if found is not None and (found.topic_id, found.chunks_id) != (topic_id, chunks_id):
            raise ConfigMismatch(
                f"table {self._options.table.name} has the samples of another log (topic ids {found.topic_id},"
                f" {found.chunks_id}; this log's are {topic_id}, {chunks_id}): give another tables_name",
                reason=OTHER_LOG,
            )
        state = TableState(0, keeper, topic_id, chunks_id, {}) if found is None else replace(found, keeper=keeper)
        marks = self._log.watermarks(CHUNKS, range(self._log.partitions(CHUNKS)))
        offsets = dict(state.next_offsets)
        for number, mark in marks.items():
            if offsets.setdefault(number, 0) < mark.low:
                self._new_holes.append(self._trimmed(number, mark.low))
                offsets[number] = mark.low
        return replace(state, next_offsets=offsets)

    def _trimmed(self, number: int, low: int) -> HoleRecord:
        # Chunks that are gone hold samples from before the first that is left, whose broker time is at least this old.
        return HoleRecord(number, 0, LONG_AGO_MS, self._clock.now_ms(), TRIMMED, low)

    def wake(self) -> None:
        """End the poll that waits."""
        if self._reader is not None:
            self._reader.wake()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._labels is not None:
            self._labels.close()
        self._catalog.close()

    def step(self, closing: Callable[[], bool]) -> None:
        """Read until a commit is due, and commit."""
        waiting = self._waiting
        while not closing() and not self._is_due():
            self._read(IDLE_POLL_S if waiting.since is None else self._due_in_s(waiting.since))
        if not closing() and waiting.since is not None:
            self._commit()

    def _due_in_s(self, since: float) -> float:
        return max(0.0, since + self._options.interval_s - self._clock.monotonic())

    def _is_due(self) -> bool:
        waiting = self._waiting
        return waiting.since is not None and (waiting.samples >= SAMPLES_MAX or self._due_in_s(waiting.since) <= 0)

    def _read(self, timeout_s: float) -> None:
        assert self._reader is not None, "it is open"
        if self._clock.monotonic() - self._lag_at >= LAG_EVERY_S:
            self._lag_at = self._clock.monotonic()
            lag_records.set(self._lag(self._state.next_offsets))
        for event in self._reader.poll(min(timeout_s, IDLE_POLL_S), max_records=POLL_RECORDS_MAX):
            if isinstance(event, EndOfLog):
                self._waiting.next_offsets[event.partition] = event.next_offset
                continue
            for index in range(len(event.offsets)):
                self._take(event.partition, event.record(index))
            self._waiting.next_offsets[event.partition] = int(event.offsets[-1]) + 1
        for number, cut in self._markers.items():
            proven = self._waiting.next_offsets[number] >= self._proven_from[number]
            if proven and cut != self._waiting.cut.get(number, self._state.cut.get(number)):
                self._waiting.cut[number] = cut
                self._note_change()

    def _note_change(self) -> None:
        if self._waiting.since is None:
            self._waiting.since = self._clock.monotonic()

    def _take(self, partition: int, record: LogRecord) -> None:
        """Raises UnknownVersion for a record of a newer writer."""
        try:
            self._decode(partition, record)
        except CorruptData as error:
            loss = loss_at(record.key, record.broker_ms, self._options.time_set)
            self._waiting.holes.append(loss.hole(partition, error.reason, record.offset))
            self._note_change()

    def _decode(self, partition: int, record: LogRecord) -> None:
        key = decode_key(record.key or b"")
        if record.value is None:
            return  # The samples are in another chunk with their orders, and in the table once.
        match key:
            case ChunkKey():
                fragment = decode_chunk(record.value)
                if (fragment.pack_id, fragment.window_start_ms) != (key.pack_id, key.window_start_ms):
                    raise CorruptData("chunk under the key of another", reason="wrong_chunk")
                if not FIRST_MS <= fragment.window_start_ms < END_MS - self._options.time_set.window_ms:
                    raise CorruptData("samples outside the years 1 to 9999", reason="key_out_of_range")
                self._waiting.fragments.append(fragment)
                self._waiting.samples += fragment.samples
                self._note_change()
            case ProgressKey():
                marker = decode_progress_marker(record.value)
                if marker.topic_id == self._state.topic_id:
                    self._markers[partition] = LogCut(marker.position, marker.emitted_through_ms)
            case HoleKey():
                self._waiting.holes.append(decode_hole(record.value))
                self._note_change()
            case WindowKey():
                pass

    def _commit(self) -> None:
        assert self._labels is not None, "it is open"
        waiting, begun = self._waiting, time.perf_counter()
        if waiting.fragments:
            self._labels.catch_up(self._clock, SERIES_WITHIN_S)
            self._write_series(self._labels)
        self._reload()  # A compaction and an expiry may have taken the files of the known snapshot.
        state = self._next_state(waiting)
        emitted = self._emit(self._labels, waiting, state)
        commit_seconds.observe(time.perf_counter() - begun)
        self._count(emitted, waiting.holes)
        self._waiting = _Waiting(dict(waiting.next_offsets))
        self._state = self.found = replace(state, accepted=self._state.accepted)

    def _write_series(self, labels: AnnouncedLabels) -> None:
        """Commit the series first: a reader that sees a sample finds its series."""
        new = labels.new()
        if new:
            write_series(self._series(), new, labels.offsets())
            labels.note_written()
            series_total.inc(len(new))

    def _emit(self, labels: AnnouncedLabels, waiting: _Waiting, state: TableState) -> Emitted:
        """Emit, and again on top of a commit that only rewrote files, as a compaction does."""
        for tries_left in reversed(range(REWRITES_MAX)):
            try:
                return emit(self._table, waiting.fragments, labels.get, replace(state, accepted=self._state.accepted))
            except Unavailable as error:
                if not is_conflict(error) or not tries_left:
                    raise
                self._reload()
        raise AssertionError("the last try returns or raises")

    def _reload(self) -> None:
        """Load the table. Raises Unavailable (tables_conflict) if another keeper has committed since. An operator may
        have accepted losses."""
        self._table = self._loaded()
        now = table_state(self._table)
        if now is not None and self.found is not None and replace(now, accepted=self.found.accepted) == self.found:
            self._state = replace(self._state, accepted=now.accepted)
            self.found = now
        if now != self.found:
            raise _conflict(self._options.table.name)

    def _next_state(self, waiting: _Waiting) -> TableState:
        known = self._state.holes
        new = [one for one in waiting.holes if one not in known]
        return replace(
            self._state,
            emission=self._state.emission + 1,
            next_offsets=dict(waiting.next_offsets),
            cut={**self._state.cut, **waiting.cut},
            holes=(*known, *new)[-HOLES_MAX:],
            holes_total=self._state.holes_total + len(new),
        )

    def _count(self, emitted: Emitted, holes: Sequence[HoleRecord]) -> None:
        commits_total.inc()
        samples_total.labels("added").inc(emitted.samples)
        samples_total.labels("repeated").inc(emitted.repeated)
        samples_total.labels("replaced").inc(emitted.replaced)
        unlabelled_total.inc(emitted.unlabelled)
        files_total.labels("added").inc(emitted.files_added)
        files_total.labels("replaced").inc(emitted.files_replaced)
        for hole in holes:
            holes_total.labels(hole.reason).inc()
            log.warning("the table lacks samples", partition=hole.partition, reason=hole.reason)
        emitted_timestamp.set(self._clock.now_ms() / 1000)
        lag_records.set(self._lag(self._waiting.next_offsets))

    def _lag(self, next_offsets: Mapping[int, int]) -> int:
        ends = self._log.high_watermarks(CHUNKS, sorted(next_offsets))
        return sum(max(0, end - next_offsets[number]) for number, end in ends.items())


def _conflict(name: str) -> Unavailable:
    return Unavailable(f"table {name}: another keeper commits to it", reason=CONFLICT, retry_after_s=0.0)
