"""Loading: writes one record of `chunks` or `series` to history. It begins the write and counts its end; it never
blocks.

One record of `chunks` is one row with the record's key; a null record deletes the row. Records are not combined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tsdb.chain import Chain, freshness_ms
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, ProgressKey, WindowKey, decode_key
from tsdb.codec.chunk.marker import HoleRecord, decode_hole, decode_progress_marker
from tsdb.codec.records.series_record import decode_announcement
from tsdb.history.interface import ChunkSink
from tsdb.history.loader.errors import REFUSED_ROWS, NotLoadable
from tsdb.history.loader.loaded_marks import LoadedMarks
from tsdb.history.loader.loss import loss_of
from tsdb.history.loader.remembered import Remembered, mark_of
from tsdb.log.interface import CHUNKS
from tsdb.model.errors import CorruptData, TsdbError
from tsdb.model.time_set import TimeSet
from tsdb.ops.metrics import counter, histogram
from tsdb.parallel_consumer import Done, Record

KINDS = (
    *("chunk", "delete", "hole", "hole_delete", "series", "series_repeat"),
    *("progress", "progress_kept_back", "window"),
)
# From the windows of the demo, which take seconds, to a spread of hours and an outage of a day.
FRESHNESS_BUCKETS_S = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)

loaded_records_total = counter(
    "tsdb_loader_records_total",
    "Records put into history, by kind; series_repeat, window and progress_kept_back write nothing.",
    label="kind",
    values=KINDS,
)
loaded_bytes_total = counter("tsdb_loader_chunk_bytes_total", "Bytes of chunks put into history.")
not_loadable_total = counter(
    "tsdb_loader_not_loadable_total",
    "Records that became a hole and a dead letter, by reason.",
    label="reason",
    values=(
        *("chunk_key", "key_out_of_range", "chunk_too_large", "corrupt_chunk", "wrong_chunk"),
        *("chunk_marker", "corrupt_series"),
    ),
)
freshness_seconds = histogram(
    "tsdb_loader_freshness_seconds",
    "From when a chunk was due (its window closed, its late minute ended; other kinds: it was made) until it was in"
    " history. A chunk that is loaded a second time counts too.",
    label="kind",
    values=[kind.name.lower() for kind in Kind],
    buckets=FRESHNESS_BUCKETS_S,
)
_freshness = {kind: freshness_seconds.labels(kind.name.lower()) for kind in Kind}
_loaded = {kind: loaded_records_total.labels(kind) for kind in KINDS}


class Loading:
    """The handler of the loader. It runs on the consumer's thread; the answers come on threads of the store."""

    def __init__(
        self,
        store: ChunkSink,
        marks: LoadedMarks,
        remembered: Remembered,
        time_set: TimeSet,
        part_bytes_max: int,
        chain: Chain,
    ) -> None:
        self._store = store
        self._marks = marks
        self._remembered = remembered
        self._time_set = time_set
        self._part_bytes_max = part_bytes_max
        self._chain = chain

    def __call__(self, record: Record, done: Done) -> None:
        """Begin to load one record; `done` is called with the result."""
        if record.topic == CHUNKS:
            self._load_chunks_record(record, done)
        else:
            self._load_series(record, done)

    def _load_chunks_record(self, record: Record, done: Done) -> None:
        try:
            key = decode_key(record.key or b"")
        except CorruptData as error:
            self._give_up(record, error, done)
            return
        match key:
            case ChunkKey():
                self._load_chunk(record, key, done)
            case ProgressKey():
                self._load_progress(record, done)
            case HoleKey():
                self._load_hole(record, key, done)
            case WindowKey():
                # The chunk stage and rebuilds use window markers; readers of history do not need them.
                self._counted("window", done)(None)

    def _load_chunk(self, record: Record, key: ChunkKey, done: Done) -> None:
        if record.value is None:
            self._store.delete_covered([key], self._counted("delete", done))
            return
        try:
            self._check_chunk(key, record.value)
            self._store.write(key, record.value, partial(self._chunk_written, record, key.kind, done))
        except REFUSED_ROWS as error:
            self._give_up(record, error, done)

    def _check_chunk(self, key: ChunkKey, value: bytes) -> None:
        """Raises CorruptData for a chunk that no reader could use, UnknownVersion for a chunk of a newer writer."""
        if len(value) > self._part_bytes_max:
            message = f"chunk of {len(value)} bytes; limit is {self._part_bytes_max}"
            raise CorruptData(message, reason="chunk_too_large")
        fragment = decode_chunk(value)
        if (fragment.pack_id, fragment.window_start_ms) != (key.pack_id, key.window_start_ms):
            raise CorruptData(
                f"chunk of pack {fragment.pack_id:#x}, window {fragment.window_start_ms} under the key of pack"
                f" {key.pack_id:#x}, window {key.window_start_ms}",
                reason="wrong_chunk",
            )

    def _chunk_written(self, record: Record, kind: Kind, done: Done, error: TsdbError | None) -> None:
        if error is None:
            loaded_bytes_total.inc(len(record.value or b""))
            link = self._chain.read(record.headers, record.timestamp_ms)
            _freshness[kind].observe(freshness_ms(self._chain, link) / 1000)
        self._counted("chunk", done)(error)

    def _load_progress(self, record: Record, done: Done) -> None:
        try:
            marker = decode_progress_marker(record.value or b"")
        except CorruptData as error:
            # No hole is written, because a marker has no samples and the next marker replaces it.
            self._refuse(error, done)
            return
        if not self._marks.load(record.partition, record.offset, marker, self._counted("progress", done)):
            self._counted("progress_kept_back", done)(None)

    def _load_hole(self, record: Record, key: HoleKey, done: Done) -> None:
        if record.value is None:
            place = (record.partition, key.pack_id, key.start_ms, key.end_ms)
            self._store.delete_hole(HoleRecord(*place, "", key.record_offset), self._counted("hole_delete", done))
            return
        try:
            hole = decode_hole(record.value or b"")
        except CorruptData as error:
            self._give_up(record, error, done)
            return
        self._store.write_hole(hole, self._counted("hole", done))

    def _load_series(self, record: Record, done: Done) -> None:
        key, value = record.key or b"", record.value or b""
        mark, life = mark_of(record.partition, key, value), self._remembered.life
        if self._remembered.holds(mark):
            self._counted("series_repeat", done)(None)
            return
        try:
            announcement = decode_announcement(key, value)
            self._store.write_series(announcement, record.partition, partial(self._series_written, mark, life, done))
        except REFUSED_ROWS as error:
            reasoned = CorruptData(error.message, reason="corrupt_series")
            self._give_up(record, reasoned, done)

    def _series_written(self, mark: int, life: int, done: Done, error: TsdbError | None) -> None:
        if error is None:
            self._remembered.add(mark, life)
        self._counted("series", done)(error)

    def _give_up(self, record: Record, error: TsdbError, done: Done) -> None:
        """Write the hole first, then the dead letter, so that no read in between misses the loss."""
        hole = loss_of(record, self._time_set).hole(record.partition, error.reason, record.offset)

        def hole_written(write_error: TsdbError | None) -> None:
            if write_error is not None:
                done(write_error)
            else:
                self._refuse(error, done)

        self._store.write_hole(hole, hole_written)

    def _refuse(self, error: TsdbError, done: Done) -> None:
        not_loadable_total.labels(error.reason).inc()
        refusal = NotLoadable(error.message, reason=error.reason)
        refusal.__cause__ = error
        done(refusal)

    def _counted(self, kind: str, done: Done) -> Callable[[TsdbError | None], None]:
        def answer(error: TsdbError | None) -> None:
            if error is None:
                _loaded[kind].inc()
            done(error)

        return answer
