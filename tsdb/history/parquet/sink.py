"""Parquet sink: writes samples and series to files for any reader of Parquet. Layout: docs/formats/parquet.md.

A third kind of history beside Cassandra and SQLite, written by the same loader; no component of this system reads it.
Files are only added, so a row that is written again, or covered by another, exists twice: of samples of one series and
time the highest order wins, as everywhere.

The tables of a sink have fragments and announcements as rows. Layout: docs/formats/parquet.md, version 1. Pure.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsdb.codec.chunk.chunk import Fragment, decode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.histogram_rows import histogram_column, start_column
from tsdb.codec.records.series_record import Announcement
from tsdb.history import statement_metrics as metrics
from tsdb.history.claims import standing, withdrawn_id
from tsdb.history.interface import Loaded, OnDone
from tsdb.history.parquet.files import add_table, put_json, read_json, translate_file_errors
from tsdb.history.parquet.folder import SinkLayout, check_key
from tsdb.history.rows import check_size
from tsdb.history.settings import HistorySettings
from tsdb.history.writes import ROW_BYTES, reserve, write_budget
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import CorruptData, TsdbError
from tsdb.model.labels import labels_json
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread, report_failure

FLUSH_S = 1.0  # A longer time gives larger files and later answers.
IDLE_S, IDLE_WRITES_LEAST = 0.05, 64
# Decoded samples take about a hundred times the bytes of their chunk, so the bound counts the decoded bytes.
WAITING_BYTES_MAX = 64 * 1024 * 1024
FLUSH_BYTES = WAITING_BYTES_MAX // 2
SAMPLE_BYTES = 24

log = get_logger(__name__)

SAMPLES = ("series_id", "ts_ms", "value", "order", "pack_id", "window_start_ms", "kind")
SERIES = pa.schema(
    [
        ("series_id", pa.uint64()),
        ("epoch", pa.int32()),
        ("partition", pa.int32()),
        ("pack_id", pa.uint64()),
        ("labels", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class _Write:
    """One write that waits for the next files. weight: bytes counted as in flight."""

    kind: str
    weight: int
    on_done: OnDone
    chunk: tuple[ChunkKey, Fragment] | None = None
    series: tuple[Announcement, int] | None = None
    file: Callable[[], None] | None = None
    size: int = 0


class ParquetSink:
    """ChunkSink of one folder. One thread writes: the chunks of FLUSH_S go into one file per day of samples."""

    def __init__(self, folder: Path, settings: HistorySettings) -> None:
        self._layout = SinkLayout(folder)
        self._settings = settings
        self._inflight = write_budget(WAITING_BYTES_MAX)
        self._work = threading.Condition()  # Guards the fields below.
        self._writes: deque[_Write] = deque()
        self._waiting_bytes = 0
        self._closing = False
        self._error: BaseException | None = None
        self._thread = new_thread(self._run, "parquet-writer")
        self._thread.start()

    def write(self, key: ChunkKey, value: bytes, on_done: OnDone) -> None:
        """See ChunkSink; decodes the chunk."""
        check_size(key, value, self._settings.part_bytes_max)
        check_key(key)
        try:
            fragment = decode_chunk(value)
        except TsdbError as error:
            on_done(metrics.count_failure(error))
            return
        details = 0 if fragment.details is None else fragment.details.nbytes
        weight = ROW_BYTES + fragment.samples * SAMPLE_BYTES + details
        self._put(_Write(metrics.CHUNK, weight, on_done, chunk=(key, fragment), size=len(value)))

    def delete_covered(self, keys: Sequence[ChunkKey], on_done: OnDone) -> None:
        """See ChunkSink; deletes nothing, because a fold holds the covered samples with their orders."""
        on_done(None)

    def write_loaded(self, loaded: Loaded, on_done: OnDone) -> None:
        self._put(_Write(metrics.LOADED, ROW_BYTES, on_done, file=lambda: self._store_loaded(loaded)))

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        metrics.statements_total.labels(metrics.READ).inc()
        with translate_file_errors("reading what is loaded"):
            of_both = (self._layout.loaded_files(one) for one in (topic_id, withdrawn_id(topic_id)))
            found = [_loaded_in(path) for paths in of_both for path in paths]
        return standing(topic_id, found)

    def write_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        """See ChunkSink; a hole here is never accepted."""
        path = self._layout.hole(hole)
        self._put(_Write(metrics.HOLE, ROW_BYTES, on_done, file=lambda: put_json(path, asdict(hole))))

    def delete_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        path = self._layout.hole(hole)
        self._put(_Write(metrics.HOLE, ROW_BYTES, on_done, file=lambda: path.unlink(missing_ok=True)))

    def write_series(self, announcement: Announcement, partition: int, on_done: OnDone) -> None:
        weight = ROW_BYTES + len(announcement.canonical)
        self._put(_Write(metrics.SERIES, weight, on_done, series=(announcement, partition)))

    def forget(self) -> None:
        """Does nothing: the sink keeps no record of its files."""

    def close(self) -> None:
        with self._work:
            self._closing = True
            self._work.notify()
        self._inflight.close()
        if not self._inflight.wait_idle(self._settings.write_timeout_s):
            log.warning("sink closed with writes unanswered", bytes=self._inflight.bytes)
        self._thread.join()

    def _put(self, write: _Write) -> None:
        reserve(self._inflight, write.weight, self._settings.write_timeout_s)
        with self._work:
            if self._error is None:
                self._writes.append(write)
                self._waiting_bytes += write.weight
                self._work.notify()
                return
        self._inflight.give_back(write.weight)
        raise self._error

    def _run(self) -> None:
        while group := self._take():
            error: TsdbError | None = None
            try:
                with translate_file_errors(f"writing to {self._layout.folder}"):
                    self._store(group)
            except TsdbError as failed:
                log.warning("files refused", writes=len(group), reason=failed.reason, error=failed.message)
                error = failed
            except Exception as bug:
                # Every write must be answered; the next write raises the error.
                report_failure(bug, "parquet-writer")
                self._error, error = bug, TsdbError(f"the sink's writer failed: {bug}")
            self._answer(group, error)

    def _take(self) -> list[_Write]:
        """The writes of the next files; empty when the sink is closed."""
        with self._work:
            self._work.wait_for(lambda: self._writes or self._closing)
            give_up_at = time.monotonic() + FLUSH_S
            while not self._closing and self._waiting_bytes < FLUSH_BYTES:
                before = len(self._writes)
                wait_s = min(IDLE_S, give_up_at - time.monotonic())
                came = self._work.wait_for(lambda known=before: self._closing or len(self._writes) > known, wait_s)  # type: ignore[misc]
                # Enough writes wait and no new one came, because the loader waits for answers before it sends more.
                if wait_s <= 0 or (not came and before >= IDLE_WRITES_LEAST):
                    break
            group = list(self._writes)
            self._writes.clear()
            self._waiting_bytes = 0
            return group

    def _store(self, group: list[_Write]) -> None:
        """Write samples and series first, then the files that claim them (`loaded`, holes)."""
        chunks: dict[Path, list[tuple[ChunkKey, Fragment]]] = defaultdict(list)
        for write in group:
            if write.chunk is not None:
                chunks[self._layout.day(write.chunk[0].window_start_ms)].append(write.chunk)
        for folder, some in sorted(chunks.items()):
            metrics.statements_total.labels(metrics.CHUNK).inc()
            add_table(folder, samples_table(some))
        series = [write.series for write in group if write.series is not None]
        if series:
            metrics.statements_total.labels(metrics.SERIES).inc()
            add_table(self._layout.series, series_table(series))
        for write in group:
            if write.file is not None:
                metrics.statements_total.labels(write.kind).inc()
                write.file()

    def _store_loaded(self, loaded: Loaded) -> None:
        path = self._layout.loaded(loaded.topic_id, loaded.partition)
        if path.exists():
            known = _loaded_in(path)
            if (known.position, known.emitted_through_ms) >= (loaded.position, loaded.emitted_through_ms):
                return
        put_json(path, asdict(loaded))

    def _answer(self, group: list[_Write], error: TsdbError | None) -> None:
        for write in group:
            if error is not None:
                metrics.count_failure(error)
            else:
                metrics.written_bytes_total.inc(write.size)
            try:
                write.on_done(error)
            except BaseException as bug:
                # A callback has a bug. The other answers must still be delivered; the next write raises the error.
                self._error = bug
                report_failure(bug, "parquet-writer")
            finally:
                self._inflight.give_back(write.weight)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _loaded_in(path: Path) -> Loaded:
    values = read_json(path)
    try:
        return Loaded(
            str(values["topic_id"]),
            int(values["partition"]),
            int(values["position"]),
            int(values["emitted_through_ms"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"{path} does not say what is loaded: {error!r}", reason="corrupt_row") from error


def samples_table(chunks: Sequence[tuple[ChunkKey, Fragment]]) -> pa.Table:
    """A table with one row per sample, chunk by chunk. At least one chunk is given. Where a sample has details, two
    more columns have them."""
    fragments = [fragment for _, fragment in chunks]
    counts = np.array([fragment.samples for fragment in fragments])
    per_series = np.concatenate([np.diff(fragment.sample_start) for fragment in fragments])
    pack_ids = np.array([key.pack_id for key, _ in chunks], np.uint64)
    windows = np.array([key.window_start_ms for key, _ in chunks], np.int64)
    kinds = pa.array([kind.name.lower() for kind in Kind])
    kind_of = np.array([key.kind for key, _ in chunks], np.int8)
    columns = (
        pa.array(np.repeat(np.concatenate([fragment.series_id for fragment in fragments]), per_series)),
        pa.array(np.concatenate([fragment.ts_ms for fragment in fragments])),
        pa.array(np.concatenate([fragment.value for fragment in fragments])),
        pa.array(np.concatenate([fragment.order for fragment in fragments])),
        pa.array(np.repeat(pack_ids, counts)),
        pa.array(np.repeat(windows, counts)),
        pa.DictionaryArray.from_arrays(pa.array(np.repeat(kind_of, counts)), kinds),
    )
    table = pa.Table.from_arrays(list(columns), names=SAMPLES)
    details = joined_details([(fragment.samples, fragment.details) for fragment in fragments])
    return table if details is None else _with_details(table, details)


def _with_details(table: pa.Table, details: SampleDetails) -> pa.Table:
    if details.histogram_of is not None:
        values = pa.array(table["value"].to_numpy(), mask=details.histogram_of >= 0)
        table = table.set_column(SAMPLES.index("value"), "value", values)
    start_ms = start_column(details, len(table)).cast(pa.int64())
    table = table.append_column("start_ms", pc.divide(start_ms, 1000))
    return table.append_column("histogram", histogram_column(details, len(table)))


def series_table(announced: Sequence[tuple[Announcement, int]]) -> pa.Table:
    """A table with one row per announcement. announced: pairs of announcement and partition."""
    columns = (
        [one.series_id for one, _ in announced],
        [one.epoch for one, _ in announced],
        [partition for _, partition in announced],
        [one.pack_id for one, _ in announced],
        [labels_json(one.canonical) for one, _ in announced],
    )
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SERIES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SERIES)
