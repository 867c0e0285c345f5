"""Task: build one work item, write its records, and return one row of counts."""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass

import pyarrow as pa

from spark_backfill.building.build import build
from spark_backfill.building.items import BaseItem, Item
from spark_backfill.building.options import BuildOptions
from spark_backfill.worker_log import worker_log
from spark_backfill.writing.appender import TaskAppender
from tsdb.chunks.records import ChunkRecord
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, WindowKey, decode_key
from tsdb.codec.chunk.marker import decode_window_marker
from tsdb.log.chains import chain_of
from tsdb.log.interface import CHUNKS, Log
from tsdb.model.clock import Clock, SystemClock
from tsdb.ops.metrics import total
from tsdb.replay.replay import records_total
from tsdb.replay.series_feed import announcements_total

RECEIPT_DDL = (
    "partition int, kind string, first long, end long, base_chunks long, late_chunks long, windows long,"
    " empty_windows long, holes long, samples long, late_samples long, bytes long, appends long, append_failures long,"
    " records_read long, announcements_read long, seconds double"
)
"""first, end: the item's times in ms (base) or offsets (late). samples: samples in base chunks. appends: records sent,
repeated ones included. append_failures: appends that were repeated. records_read, announcements_read: records of
`metrics` and `series`.
"""


@dataclass(slots=True)
class Receipt:
    """Counts of the records made for one item."""

    base_chunks: int = 0
    late_chunks: int = 0
    windows: int = 0
    empty_windows: int = 0
    holes: int = 0
    samples: int = 0
    late_samples: int = 0
    bytes: int = 0
    appends: int = 0
    append_failures: int = 0
    records_read: int = 0
    announcements_read: int = 0

    def count(self, record: ChunkRecord) -> None:
        self.bytes += record.size
        match decode_key(record.key):
            case ChunkKey(kind=Kind.BASE):
                self.base_chunks += 1
            case ChunkKey():
                self.late_chunks += 1
                self.late_samples += record.samples
            case HoleKey():
                self.holes += 1
            case WindowKey():
                marker = decode_window_marker(record.value)
                self.windows += 1
                self.empty_windows += not marker.packs
                self.samples += marker.samples


def chunk_appender(log: Log, options: BuildOptions, clock: Clock) -> TaskAppender:
    """An appender to `chunks` with the metrics of the chunk stage."""
    return TaskAppender(
        log,
        CHUNKS,
        inflight_bytes_max=options.inflight_bytes_max,
        give_up_s=options.patience_s,
        clock=clock,
        counts=StageMetrics("spark"),
    )


def run_item(item: Item, options: BuildOptions, clock: Clock | None = None) -> pa.RecordBatch:
    """Build, write, wait for all acknowledgements; return one row of RECEIPT_DDL. Raises as build and TaskAppender."""
    clock, began = clock or SystemClock(), time.monotonic()
    log = worker_log(options.places, options.topic_id)
    sender, chain = chunk_appender(log, options, clock), chain_of("chunk-stage", clock.now_ms)
    receipt = Receipt()
    # A worker runs one task at a time, so what its counters move by is this item's.
    records, announcements = total(records_total), total(announcements_total)
    try:
        for record in build(item, log, options, clock):
            # A window's marker states that its chunks are in the topic, so they must be acknowledged before it.
            if isinstance(decode_key(record.key), WindowKey):
                sender.finish()
            sender.send(item.partition, record.key, record.value, record.headers(chain))
            receipt.count(record)
        sender.finish()
        receipt.appends, receipt.append_failures = sender.appends, sender.failures
        receipt.records_read = total(records_total) - records
        receipt.announcements_read = total(announcements_total) - announcements
    except BaseException:
        sender.abandon()
        raise
    return _row(item, receipt, time.monotonic() - began)


def _row(item: Item, receipt: Receipt, seconds: float) -> pa.RecordBatch:
    base = isinstance(item, BaseItem)
    first, end = (item.start_ms, item.end_ms) if isinstance(item, BaseItem) else (item.first_offset, item.end_offset)
    whole = (first, end, *astuple(receipt))
    names = [field.split()[0] for field in RECEIPT_DDL.split(", ")]
    columns = [
        pa.array([item.partition], pa.int32()),
        pa.array(["base" if base else "late"]),
        *(pa.array([number], pa.int64()) for number in whole),
        pa.array([seconds], pa.float64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)
