"""Frame writer: `df.write.format("tsdb")` writes rows of a DataFrame as chunks of imports. Each task writes its parts.

There is no shuffle: a task sorts its rows, and its number is the upper bits of its part numbers, so two tasks with
samples of one pack and window never write the same key. A frame partitioned by series gives the fewest chunks. A job id
stands for one frame: after the frame is written, a task with other rows under this id is refused before it sends any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_backfill.failures import quoted_errors
from spark_backfill.places import Places
from spark_backfill.source.columns import LABELS, TS, VALUE
from spark_backfill.source.rows import US_PER_MS
from spark_backfill.writing.appender import TaskAppender
from spark_backfill.writing.chunk_writer import RANGES_MAX, ChunkWriter, Written
from spark_backfill.writing.fragments import SortedRows
from spark_backfill.writing.frame_record import NO_ROWS, FrameRecord, find_frame, finish_frame, rows_digest
from spark_backfill.writing.import_run import ImportRun, begin_run
from spark_backfill.writing.label_column import joined_labels
from spark_backfill.writing.loader_wait import wait_until_seen
from tsdb.codec.records.series_record import encode_announcement
from tsdb.log.interface import METRICS, SERIES
from tsdb.log.meta import require_meta
from tsdb.model.clock import SystemClock
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.model.labels import LabelLimits, normalize_labels, series_id
from tsdb.model.meta import MetaSettings
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.window import EPOCH_MS
from tsdb.ops.logs import get_logger

NEEDED = (LABELS, TS, VALUE)
WAIT_S = 600.0  # Longest wait for the loader, as for imports.
ROWS_MAX = 16_000_000  # Rows of one task: 32 bytes each, and the same again for sorting.
FINGERPRINT = "dataframe"
# Spark turns every NaN of a pandas frame into null, and a null may also mean that there is no sample.
NAN_HINT = (
    ", which is also what Spark makes of a pandas NaN: drop those rows, or write NaN by"
    " `df.withColumn('value', F.coalesce('value', F.lit(float('nan'))))`"
)

log = get_logger(__name__)


@dataclass
class WroteMessage(WriterCommitMessage):
    """Result of one task. number: number of the task. digest: digest of its rows."""

    number: int
    digest: str
    written: Written


def begin_frame_write(places: Places, job_id: str, wait_s: float = WAIT_S) -> FrameWriter:
    """Called once on the driver: append a tick to every partition. wait_s: longest wait for the loader; 0: no wait.

    Raises ConfigMismatch (meta), and as begin_run and find_frame.
    """
    with quoted_errors(), places.open_log() as opened:
        shared = require_meta(opened)
        run = begin_run(opened, job_id, range(opened.partitions(METRICS)), FINGERPRINT, SystemClock())
        return FrameWriter(places, shared, run, find_frame(opened, job_id), wait_s)


class FrameWriter(DataSourceArrowWriter):
    """A writer that Spark sends to tasks. before: the record of an earlier finished write with the same job id."""

    def __init__(
        self, places: Places, shared: MetaSettings, run: ImportRun, before: FrameRecord | None, wait_s: float
    ) -> None:
        self._places = places
        self._shared = shared
        self._run = run
        self._before = before
        self._wait_s = wait_s

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WroteMessage:
        """Write all rows of a task.

        Raises InvalidRequest (bad_schema, too_many_tasks, too_recent, null_value, labels_*) for a row that is not a
        valid sample, and ConfigMismatch (other_frame). The task has sent nothing then, and the whole write fails.
        """
        context = TaskContext.get()
        assert context is not None, "a task has a context"
        number = context.partitionId()
        with quoted_errors():
            if number >= RANGES_MAX:
                raise InvalidRequest(f"over {RANGES_MAX} tasks write; coalesce the frame", reason="too_many_tasks")
            rows = _TaskRows(self._shared, self._run.end_ms(self._shared.time_set), number)
            for batch in iterator:
                rows.add(batch)
            in_order = rows.sorted() if rows.count else None
            digest = NO_ROWS if in_order is None else rows_digest(in_order)
            if self._before is not None:
                self._before.check(number, digest)
            if in_order is None:
                return WroteMessage(number, digest, Written())
            self._announce(rows)
            writer = ChunkWriter(
                self._places, self._run.orders, self._shared.time_set.window_ms, self._shared.part_bytes_max
            )
            return WroteMessage(number, digest, writer.write([in_order]))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record the frame and wait for the loader. Called when all tasks are done and all records are in the log.

        Raises ConfigMismatch (other_frame), Unavailable (loader_behind).
        """
        wrote = [message for message in messages if isinstance(message, WroteMessage)]
        total = Written()
        for message in wrote:
            total = total.plus(message.written)
        with quoted_errors(), self._places.open_log() as opened:
            finish_frame(opened, self._run.job_id, {message.number: message.digest for message in wrote})
            if self._wait_s:
                wait_until_seen(opened, self._run.ticks, self._run.job_id, self._wait_s, SystemClock())
        log.info("frame written", job_id=self._run.job_id, rows=total.rows, chunks=total.chunks, bytes=total.bytes)

    def _announce(self, rows: _TaskRows) -> None:
        with self._places.open_log() as opened:
            appender = TaskAppender(opened, SERIES)
            for series, epoch in rows.epochs():
                key, value = encode_announcement(series.series_id, epoch, series.pack_id, series.canonical)
                appender.send(series.partition, key, value)
            appender.finish()


@dataclass(frozen=True, slots=True)
class _Series:
    series_id: int
    pack_id: int
    partition: int
    canonical: bytes


class _TaskRows:
    """Rows of one task as columns. Series have codes, in the order of their first row."""

    def __init__(self, shared: MetaSettings, end_ms: int, number: int) -> None:
        self._shared = shared
        self._rule = PlacementRule(shared.placement_labels)
        self._end_ms = end_ms
        self._number = number
        self._codes: dict[bytes, int] = {}
        self._series: list[_Series] = []
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the columns labels, ts and value of a batch; other columns are ignored."""
        missing = [name for name in NEEDED if name not in batch.schema.names]
        if missing:
            raise InvalidRequest(f"the frame has no column {', '.join(missing)}", reason="bad_schema")
        for name in NEEDED:
            if batch.column(name).null_count:
                hint = NAN_HINT if name == VALUE else ""
                raise InvalidRequest(f"column {name} has nulls{hint}", reason="null_value")
        self.count += batch.num_rows
        if self.count > ROWS_MAX:
            raise Overloaded(f"a task has over {ROWS_MAX} rows: repartition the frame", reason="rows_limit")
        times = batch.column(TS).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() // US_PER_MS
        if len(times) and int(times.max()) >= self._end_ms:
            raise InvalidRequest(
                f"a sample at {int(times.max())} ms; imports end before {self._end_ms}: newer ones go to the gateway",
                reason="too_recent",
            )
        values = batch.column(VALUE).to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        self._parts.append((self._codes_of(batch.column(LABELS)), times, values))

    def sorted(self) -> SortedRows:
        """All rows in the order that the chunk writer needs."""
        codes, times, values = (np.concatenate(columns) for columns in zip(*self._parts, strict=True))
        partition = np.array([each.partition for each in self._series], np.int32)[codes]
        pack_id = np.array([each.pack_id for each in self._series], np.uint64)[codes]
        ids = np.array([each.series_id for each in self._series], np.uint64)[codes]
        windows = times - times % self._shared.time_set.window_ms
        order = np.lexsort((times, ids, windows, pack_id))
        number = np.full(len(order), self._number, np.int32)
        return SortedRows(
            partition[order], pack_id[order], windows[order], number, ids[order], times[order], values[order]
        )

    def epochs(self) -> Iterator[tuple[_Series, int]]:
        """The (series, index epoch) pairs of all rows; a pair may come more than once."""
        ids = np.array([each.series_id for each in self._series], np.uint64)
        for codes, times, _ in self._parts:
            phase = (ids[codes] % np.uint64(EPOCH_MS)).astype(np.int64)
            pairs = np.unique(np.stack([codes, (times + phase) // EPOCH_MS]), axis=1)
            yield from ((self._series[code], epoch) for code, epoch in pairs.T.tolist())

    def _codes_of(self, labels: pa.Array) -> NDArray[np.int64]:
        """A code for each row, int64 (n,). Equal labels are found as joined bytes, without a Python object a row."""
        coded = joined_labels(labels)
        if coded.indices.null_count:
            raise InvalidRequest(
                f"column {LABELS} has a label that is null or no UTF-8: drop those rows, or those labels",
                reason="labels_malformed",
            )
        numbers = np.array([self._code(raw) for raw in coded.dictionary.to_pylist()], np.int64)
        found: NDArray[np.int64] = numbers[coded.indices.to_numpy(zero_copy_only=False)]
        return found

    def _code(self, raw: bytes) -> int:
        code = self._codes.get(raw)
        if code is None:
            canonical = normalize_labels(raw, LabelLimits())
            place = self._rule.place(canonical)
            partition = partition_of(place.placement, self._shared.partitions)
            code = self._codes[raw] = len(self._series)
            self._series.append(_Series(series_id(canonical), place.pack_id, partition, canonical))
        return code
