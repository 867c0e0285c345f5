"""Finds the folders of blocks, opens a block, and reads the rows of a share of its series.

A block has tombstones: deleted intervals of series whose samples are still in the chunks. Its `meta.json` says how many
series and chunks its index has.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_backfill.jobs.imports.prometheus.index import BlockIndex, BlockSeries, ByteCursor, ChunkRef
from spark_backfill.jobs.imports.prometheus.segments import ChunkSamples, Segments, mapped
from tsdb.codec.histogram_rows import HISTOGRAM, histogram_column
from tsdb.model.errors import CorruptData, InvalidRequest, UnknownVersion

INDEX = "index"
META = "meta.json"
META_VERSION = 1
META_BYTES_MAX = 16 << 20  # Of a block made of thousands, all of which it names.
# Prometheus gives these ends to the name of a block that it writes or removes.
UNFINISHED = (".tmp-for-creation", ".tmp-for-deletion")
NATIVE_HISTOGRAM = "native_histogram"
BATCH_ROWS = 65_536
_ARROW = pa.schema(
    [
        ("labels", pa.string()),
        ("ts_ms", pa.int64()),
        ("value", pa.float64()),
        ("histogram", HISTOGRAM),
        ("start_ms", pa.int64()),
        ("problem", pa.string()),
        ("shown", pa.string()),
    ]
)

MAGIC, VERSION = 0x0130_BA30, 1
HEADER_BYTES, CRC_BYTES = 5, 4

Tombstones = Mapping[int, Sequence[tuple[int, int]]]
"""Intervals [first_ms, last_ms] by number of the series, both ends included."""


def blocks_at(paths: Sequence[str]) -> list[Path]:
    """Block folders: those that have an index file. paths: blocks, or folders of blocks.

    Raises InvalidRequest: no_input, or no_meta for a block without meta.json, which Prometheus writes last.
    """
    found: list[Path] = []
    for path in map(Path, (path.removeprefix("file://") for path in paths)):
        blocks = [path] if (path / INDEX).is_file() else sorted(each.parent for each in path.glob(f"*/{INDEX}"))
        blocks = [block for block in blocks if not block.name.endswith(UNFINISHED)]
        if not blocks:
            raise InvalidRequest(f"{path} is no block of Prometheus and has none in it", reason="no_input")
        found += blocks
    for block in found:
        if not (block / META).is_file():
            raise InvalidRequest(
                f"{block} has no {META}: Prometheus did not finish it, or a copy of it is cut short; copy it again, or"
                " move it away",
                reason="no_meta",
            )
    return found


@dataclass(frozen=True, slots=True)
class BlockMeta:
    """The content of meta.json. min_ms, max_ms: [min_ms, max_ms) has all samples. series, chunks, samples: the numbers
    of the index; 0 where it does not say."""

    min_ms: int
    max_ms: int
    series: int
    chunks: int
    samples: int


def read_meta(block: Path) -> BlockMeta:
    """Read the meta.json of a block. Raises CorruptData (corrupt_block), UnknownVersion."""
    file = block / META
    try:
        with file.open("rb") as opened:
            fields = json.loads(opened.read(META_BYTES_MAX))
        version, times = fields["version"], (fields["minTime"], fields["maxTime"])
        stats = fields.get("stats") or {}
        counts = [stats.get(name) or 0 for name in ("numSeries", "numChunks", "numSamples")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(f"{file} is no meta.json of a block: {error!r}", reason="corrupt_block") from None
    if version != META_VERSION:
        raise UnknownVersion(f"{file}: block is of version {version}; this process knows {META_VERSION}")
    if not all(type(number) is int and number >= 0 for number in counts) or not all(type(at) is int for at in times):
        raise CorruptData(f"{file}: times {times} and counts {counts} must be whole numbers", reason="corrupt_block")
    return BlockMeta(*times, *counts)


class OpenBlock:
    """An opened block. Files are mapped until the value is dropped. Raises CorruptData (corrupt_block),
    UnknownVersion."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index = BlockIndex(mapped(folder / INDEX), str(folder / INDEX))
        self._segments = Segments(sorted((folder / "chunks").glob("[0-9]*")))
        stones = folder / "tombstones"
        self._deleted = read_tombstones(mapped(stones), str(stones)) if stones.is_file() else {}

    def series(self) -> Iterator[BlockSeries]:
        """Every series, in the order of the index. At its end the numbers of meta.json must have come."""
        meta, series, chunks = read_meta(self._folder), 0, 0
        for one in self._index.series():
            series, chunks = series + 1, chunks + len(one.chunks)
            yield one
        for what, got, want in (("series", series, meta.series), ("chunks", chunks, meta.chunks)):
            if want and got != want:
                raise CorruptData(
                    f"{self._folder / INDEX} has {got} {what}; {META} says {want}", reason="corrupt_block"
                )

    def chunks(self, number: int) -> tuple[ChunkRef, ...]:
        """The chunks of a series by its number."""
        return self._index.chunks(number)

    def samples(self, number: int, ref: ChunkRef) -> ChunkSamples | None:
        """The samples of a chunk outside all deleted intervals; None for histograms that cannot be stored."""
        samples = self._segments.read(ref)
        deleted = self._deleted.get(number, ())
        if samples is None or not deleted:
            return samples
        kept = alive(samples.ts_ms, deleted)
        details = None if samples.details is None else samples.details.take(np.flatnonzero(kept))
        return ChunkSamples(samples.ts_ms[kept], samples.value[kept], details)


def read_share(folder: Path, share: int, shares: int) -> Iterator[pa.RecordBatch]:
    """Every shares-th series of a block. Raises CorruptData (corrupt_block), UnknownVersion."""
    block = OpenBlock(folder)
    waiting: list[pa.RecordBatch] = []
    for place, series in enumerate(block.series()):
        if place % shares == share:
            waiting += _rows(series, block)
        if sum(map(len, waiting)) >= BATCH_ROWS:
            yield from _joined(waiting)
            waiting = []
    if waiting:
        yield from _joined(waiting)


def _rows(series: BlockSeries, block: OpenBlock) -> Iterator[pa.RecordBatch]:
    labels = json.dumps(dict(series.labels))
    for ref in series.chunks:
        samples = block.samples(series.number, ref)
        if samples is None:
            none = ChunkSamples(np.array([ref.min_ms]), np.zeros(1))
            yield _batch(labels, none, NATIVE_HISTOGRAM, shown_chunk(ref))
        else:
            yield _batch(labels, samples, None, None)


def shown_chunk(ref: ChunkRef) -> str:
    """A chunk in a message."""
    return f"chunk of [{ref.min_ms}, {ref.max_ms}]"


def _batch(labels: str, samples: ChunkSamples, problem: str | None, shown: str | None) -> pa.RecordBatch:
    rows, details = len(samples.ts_ms), samples.details
    start_ms = None if details is None else details.start_ms
    arrays = [
        pa.repeat(pa.scalar(labels, pa.string()), rows),
        pa.array(samples.ts_ms, pa.int64()),
        pa.array(samples.value, pa.float64(), from_pandas=False),
        histogram_column(details, rows),
        pa.nulls(rows, pa.int64()) if start_ms is None else pa.array(start_ms),
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
