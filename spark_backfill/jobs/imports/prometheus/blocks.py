"""Blocks as raw rows: several tasks read each block, and each task decodes its share of the series.

A block has tombstones: deleted intervals of series whose samples are still in the chunks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.imports.prometheus.index import BlockIndex, BlockSeries, ByteCursor
from spark_backfill.jobs.imports.prometheus.segments import Segments, mapped
from spark_backfill.jobs.imports.raw_rows import RAW_SCHEMA
from tsdb.model.errors import InvalidRequest, UnknownVersion

INDEX = "index"
SHARES = 8  # Tasks for one block: two hours of a large Prometheus have millions of series.
BATCH_ROWS = 65_536
_ARROW = pa.schema(
    [
        ("labels", pa.string()),
        ("ts_ms", pa.int64()),
        ("value", pa.float64()),
        ("problem", pa.string()),
        ("shown", pa.string()),
    ]
)

MAGIC, VERSION = 0x0130_BA30, 1
HEADER_BYTES, CRC_BYTES = 5, 4

Tombstones = Mapping[int, Sequence[tuple[int, int]]]
"""Intervals [first_ms, last_ms] by number of the series, both ends included."""


def block_rows(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Rows of RAW_SCHEMA for all samples of the blocks. paths: blocks or folders of blocks; tasks use the same paths.

    Raises InvalidRequest (no_input). A chunk of a native histogram gives one row with a problem.
    """
    shares = [(str(block), share) for block in blocks_at(paths) for share in range(SHARES)]
    frame = spark.createDataFrame(shares, "block string, share int").repartition(len(shares), "block", "share")
    return frame.mapInArrow(_read_shares, RAW_SCHEMA)


def blocks_at(paths: Sequence[str]) -> list[Path]:
    """Block folders: those that have an index file. Raises InvalidRequest (no_input)."""
    found = []
    for path in map(Path, (path.removeprefix("file://") for path in paths)):
        blocks = [path] if (path / INDEX).is_file() else sorted(each.parent for each in path.glob(f"*/{INDEX}"))
        if not blocks:
            raise InvalidRequest(f"{path} is no block of Prometheus and has none in it", reason="no_input")
        found += blocks
    return found


def _read_shares(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with quoted_errors():
        for batch in batches:
            for row in batch.to_pylist():
                yield from read_share(Path(row["block"]), row["share"], SHARES)


def read_share(block: Path, share: int, shares: int) -> Iterator[pa.RecordBatch]:
    """Every shares-th series of a block. Raises CorruptData (corrupt_block), UnknownVersion."""
    index = BlockIndex(mapped(block / INDEX), str(block / INDEX))
    segments = Segments(sorted((block / "chunks").glob("[0-9]*")))
    stones = block / "tombstones"
    deleted = read_tombstones(mapped(stones), str(stones)) if stones.is_file() else {}
    waiting: list[pa.RecordBatch] = []
    for place, series in enumerate(index.series()):
        if place % shares == share:
            waiting += _rows(series, segments, deleted)
        if sum(map(len, waiting)) >= BATCH_ROWS:
            yield from _joined(waiting)
            waiting = []
    if waiting:
        yield from _joined(waiting)


def _rows(series: BlockSeries, segments: Segments, deleted: Tombstones) -> Iterator[pa.RecordBatch]:
    labels = json.dumps(dict(series.labels))
    for ref in series.chunks:
        samples = segments.read(ref)
        if samples is None:
            shown = f"chunk of [{ref.min_ms}, {ref.max_ms}]"
            yield _batch(labels, np.array([ref.min_ms]), np.zeros(1), "native_histogram", shown)
            continue
        kept = alive(samples.ts_ms, deleted.get(series.number, ()))
        yield _batch(labels, samples.ts_ms[kept], samples.value[kept], None, None)


def _batch(
    labels: str, ts_ms: NDArray[np.int64], value: NDArray[np.float64], problem: str | None, shown: str | None
) -> pa.RecordBatch:
    rows = len(ts_ms)
    arrays = [
        pa.repeat(pa.scalar(labels, pa.string()), rows),
        pa.array(ts_ms, pa.int64()),
        pa.array(value, pa.float64(), from_pandas=False),
        pa.repeat(pa.scalar(problem, pa.string()), rows),
        pa.repeat(pa.scalar(shown, pa.string()), rows),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _joined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from pa.Table.from_batches(batches).combine_chunks().to_batches(BATCH_ROWS)


def read_tombstones(data: memoryview, name: str) -> Tombstones:
    """Parse a `tombstones` file. Raises CorruptData (corrupt_block), UnknownVersion."""
    head = ByteCursor(data, name, 0, min(HEADER_BYTES, len(data)))
    if head.u32() != MAGIC:
        raise head.corrupt("no tombstones of Prometheus")
    version = head.take(1)[0]
    if version != VERSION:
        raise UnknownVersion(f"{name}: tombstones are of version {version}; this process knows {VERSION}")
    body = ByteCursor(data, name, HEADER_BYTES, len(data)).section(max(len(data) - HEADER_BYTES - CRC_BYTES, 0))
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    while body.at < body.end:
        found[body.uvarint()].append((body.varint(), body.varint()))
    return dict(found)


def alive(ts_ms: NDArray[np.int64], deleted: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Mask of the samples outside all deleted intervals, bool (n,)."""
    kept = np.ones(len(ts_ms), np.bool_)
    for first_ms, last_ms in deleted:
        kept &= (ts_ms < first_ms) | (ts_ms > last_ms)
    return kept
