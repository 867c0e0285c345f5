"""Chunk segments of a block: reads the chunk at the position that the index names."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spark_backfill.jobs.imports.prometheus.histogram_chunks import ENCODINGS, decode_histograms
from spark_backfill.jobs.imports.prometheus.index import ByteCursor, ChunkRef
from spark_backfill.jobs.imports.prometheus.xor_kernels import BROKEN, decode_xor_kernel
from tsdb.model.details import SampleDetails
from tsdb.model.errors import CorruptData, UnknownVersion

MAGIC, VERSION = 0x85BD_40DD, 1
HEADER_BYTES = 8
CHUNK_SAMPLES_MAX = 65_535
XOR = 1


@dataclass(frozen=True, slots=True)
class ChunkSamples:
    """Samples of one chunk: ts_ms int64 (n,), ascending; value float64 (n,), bit for bit, the sums of histograms;
    details of histograms."""

    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    details: SampleDetails | None = None


class Segments:
    """Reads the segment files of a block, given in order. Not thread-safe.

    Raises CorruptData (corrupt_block), UnknownVersion.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._names = [str(file) for file in files]
        self._data = [mapped(file) for file in files]
        self._ts_ms = np.empty(CHUNK_SAMPLES_MAX, np.int64)
        self._bits = np.empty(CHUNK_SAMPLES_MAX, np.uint64)
        for data, name in zip(self._data, self._names, strict=True):
            head = ByteCursor(data, name, 0, min(HEADER_BYTES, len(data)))
            if head.u32() != MAGIC:
                raise head.corrupt("no chunks of Prometheus")
            version = head.take(1)[0]
            if version != VERSION:
                raise UnknownVersion(f"{name}: chunks are of version {version}; this process knows {VERSION}")

    def read(self, ref: ChunkRef) -> ChunkSamples | None:
        """The samples of a chunk; None for histograms that cannot be stored."""
        if ref.segment >= len(self._data):
            raise CorruptData(
                f"the index names segment {ref.segment + 1}; there are {len(self._data)}", reason="corrupt_block"
            )
        data, name = self._data[ref.segment], self._names[ref.segment]
        cursor = ByteCursor(data, name, ref.offset, len(data))
        size = cursor.uvarint()
        body = cursor.section(size + 1)
        encoding = body.take(1)[0]
        if encoding in ENCODINGS:
            found = decode_histograms(body, encoding)
            return None if found is None else self._checked(ChunkSamples(*found), body, ref)
        if encoding != XOR:
            known = ", ".join(map(str, (XOR, *ENCODINGS)))
            raise UnknownVersion(f"{name}: chunk at {ref.offset} has encoding {encoding}; this process knows {known}")
        return self._decoded(body, ref)

    def _decoded(self, body: ByteCursor, ref: ChunkRef) -> ChunkSamples:
        bytes_ = np.frombuffer(body.data, np.uint8)
        count = decode_xor_kernel(bytes_, body.at, body.end, self._ts_ms, self._bits)
        if count == BROKEN:
            raise body.corrupt("a chunk that ends before its samples")
        found = ChunkSamples(self._ts_ms[:count].copy(), self._bits[:count].copy().view(np.float64))
        return self._checked(found, body, ref)

    @staticmethod
    def _checked(found: ChunkSamples, body: ByteCursor, ref: ChunkRef) -> ChunkSamples:
        ts_ms = found.ts_ms
        if len(ts_ms) and (bool((np.diff(ts_ms) <= 0).any()) or ts_ms[0] != ref.min_ms or ts_ms[-1] != ref.max_ms):
            raise body.corrupt("a chunk whose times do not ascend from and to where the index says")
        return found


def mapped(file: Path) -> memoryview:
    """The bytes of a file, memory-mapped: pages are read when they are used."""
    with file.open("rb") as opened:
        if not file.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
