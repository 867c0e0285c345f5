"""Chunk: encodes the samples of one pack in one window as one blob, or as several parts. Layout: docs/formats/chunk.md.

Pure. The bytes depend only on the fragment, the window's length, the largest part size and the codec version. Bad bytes
are CorruptData, never a crash or a large allocation.

A fragment has samples of one pack in one window, each with its order. A chunk encodes a fragment, and a merge joins
fragments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk import decode_kernels as decoding
from tsdb.codec.chunk.chunk_kernels import (
    CODEC,
    CRC_BYTES,
    MAGIC,
    SAMPLES_MAX,
    VERSION,
    cut_parts_kernel,
    encode_axes_kernel,
    encode_columns_kernel,
    share_axes_kernel,
    write_part_kernel,
)
from tsdb.codec.chunk.cover import COVER_VERSION, Cover, cover_place, read_cover
from tsdb.codec.chunk.sections import SECTIONS_VERSION, Sections, add_details, read_sections
from tsdb.codec.columns.columns import scratch
from tsdb.codec.columns.columns_kernels import times_bound, values_bound
from tsdb.codec.columns.details import EncodedDetails, decode_details
from tsdb.codec.crc32c import crc32c
from tsdb.model.details import SampleDetails
from tsdb.model.errors import CorruptData, UnknownVersion
from tsdb.model.meta import PART_BYTES_MAX

__all__ = [
    "CODEC",
    "PART_BYTES_MAX",
    "PART_BYTES_MIN",
    "SAMPLES_MAX",
    "VERSION",
    "decode_chunk",
    "decode_cover",
    "encode_chunk",
]

PART_BYTES_MIN = 256  # Any single float fits into a part of this size.
_HEADER_BYTES = 15  # Bytes of the smallest header.
_NO_DETAILS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Samples of k series, n in all, of the pack `pack_id` (unsigned 64 bit) in the window that starts at
    window_start_ms, ms since epoch UTC.

    series_id: uint64 (k,), strictly ascending. sample_start: int64 (k + 1,), series i has the samples
    [sample_start[i], sample_start[i + 1]), at least one. ts_ms: int64 (n,), strictly ascending within a series, ms
    since epoch. value: float64 (n,), bit for bit. order: int64 (n,), the log offset that ranks a sample against another
    of the same (series, timestamp): the higher wins. details: those of the samples, None where they have none.
    """

    pack_id: int
    window_start_ms: int
    series_id: NDArray[np.uint64]
    sample_start: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    order: NDArray[np.int64]
    details: SampleDetails | None = None

    @property
    def series(self) -> int:
        return len(self.series_id)

    @property
    def samples(self) -> int:
        return len(self.ts_ms)

    @property
    def bucket_counts(self) -> int:
        """Counts of buckets in the histograms of all samples."""
        histograms = None if self.details is None else self.details.histograms
        return 0 if histograms is None else len(histograms.buckets)

    def part(self, first: int, last: int) -> Fragment:
        """The series [first, last); arrays of samples are shared."""
        start, end = int(self.sample_start[first]), int(self.sample_start[last])
        return Fragment(
            self.pack_id,
            self.window_start_ms,
            self.series_id[first:last],
            self.sample_start[first : last + 1] - start,
            self.ts_ms[start:end],
            self.value[start:end],
            self.order[start:end],
            None if self.details is None else self.details.part(start, end),
        )


def encode_chunk(fragment: Fragment, *, window_ms: int, part_bytes_max: int = PART_BYTES_MAX) -> list[bytes]:
    """The parts of a chunk, in order. Each is a complete chunk of at most part_bytes_max bytes and SAMPLES_MAX samples.

    The fragment has at least one sample. All lie in [window_start_ms, window_start_ms + window_ms), and window_start_ms
    is a multiple of window_ms. Parts are cut at series boundaries, each as full as possible. A series that is larger
    than one part is halved until each piece fits, or is one histogram: less than 200 kB.
    """
    assert fragment.samples, "a chunk has samples"
    assert part_bytes_max >= PART_BYTES_MIN, f"parts of {part_bytes_max} bytes; at least {PART_BYTES_MIN}"
    assert fragment.window_start_ms % window_ms == 0, f"no window begins at {fragment.window_start_ms} ms"
    return list(_Encoder(fragment, window_ms).parts(part_bytes_max))


def decode_chunk(value: bytes) -> Fragment:
    """Decode the fragment in exactly these bytes. Raises CorruptData (corrupt_chunk), UnknownVersion."""
    data, end = np.frombuffer(value, np.uint8), _checked_end(value)
    if value[1] == VERSION:  # Nearly all chunks: one microsecond in eight of the smallest.
        return _decode_body(value, data, end, _header(value, data, end))
    sections = _sections(value, end)
    end = sections.columns_end
    fragment = _decode_body(value, data, end, _header(value, data, end))
    return _with_details(fragment, value, sections) if sections.details else fragment


def decode_cover(value: bytes) -> Cover | None:
    """The cover of a chunk, or None for a chunk without a cover. Raises as decode_chunk; reads no samples."""
    data, end = np.frombuffer(value, np.uint8), _checked_end(value)
    if value[1] == VERSION or (sections := _sections(value, end)).cover is None:
        return None
    head = _header(value, data, sections.columns_end)
    return read_cover(value, *sections.cover, *_place(value, head))


def _checked_end(value: bytes) -> int:
    """Check checksum and version. Returns where the checksum begins."""
    end = len(value) - CRC_BYTES
    if end < _HEADER_BYTES or crc32c(np.frombuffer(value, np.uint8)[:end]) != int.from_bytes(value[end:], "little"):
        raise _corrupt(value, "wrong checksum")
    if value[0] != MAGIC:
        raise _corrupt(value, f"begins with {value[0]:#x}, not {MAGIC:#x}")
    if value[1] not in (VERSION, COVER_VERSION, SECTIONS_VERSION) or value[2] != CODEC:
        raise UnknownVersion(
            f"chunk is of version {value[1]}, codec {value[2]}; this process knows {VERSION} to {SECTIONS_VERSION},"
            f" codec {CODEC}"
        )
    return end


def _sections(value: bytes, end: int) -> Sections:
    """Sections of a chunk of version 2 or 3, whose checksum is at `end`."""
    if value[1] == SECTIONS_VERSION:
        return read_sections(value)
    start, cover_end = cover_place(value, end)
    return Sections(start, (), (start, cover_end))


def _with_details(fragment: Fragment, value: bytes, sections: Sections) -> Fragment:
    claims_max = SAMPLES_MAX - fragment.samples
    given = fragment.ts_ms, fragment.value, fragment.sample_start
    try:
        details = decode_details(sections.details, *given, bucket_counts_max=claims_max)
    except CorruptData as refused:
        raise _corrupt(value, str(refused)) from refused
    return replace(fragment, details=details)


def _header(value: bytes, data: NDArray[np.uint8], end: int) -> NDArray[np.int64]:
    head = np.zeros(decoding.HEAD_SIZE, np.int64)
    if end < _HEADER_BYTES or decoding.read_header_kernel(data, end, head) != decoding.OK:
        raise _corrupt(value, "header and counts do not fit the bytes")
    return head


def _place(value: bytes, head: NDArray[np.int64]) -> tuple[int, int]:
    """Pack id, and start of the window in ms."""
    start_ms = int(head[decoding.WINDOW_MS]) * int(head[decoding.WINDOW_INDEX])
    return int.from_bytes(value[3:11], "little"), start_ms


def _decode_body(value: bytes, data: NDArray[np.uint8], end: int, head: NDArray[np.int64]) -> Fragment:
    series, axes = int(head[decoding.SERIES]), int(head[decoding.AXES])
    series_id, sample_start = np.empty(series, np.uint64), np.empty(series + 1, np.int64)
    axis_of = np.empty(series, np.int64)
    axis_at, axis_end, axis_count = (np.empty(axes, np.int64) for _ in range(3))
    axis = (axis_of, axis_at, axis_end, axis_count)
    status = decoding.read_directory_kernel(data, end, head, series_id, sample_start, *axis)
    if status == decoding.TOO_MANY_SAMPLES:
        raise _corrupt(value, f"claims over {SAMPLES_MAX} samples")
    if status != decoding.OK:
        raise _corrupt(value, "series or axes are no directory")
    samples = int(head[decoding.SAMPLES])
    ts_ms, order = np.empty(samples, np.int64), np.empty(samples, np.int64)
    values = np.empty(samples, np.float64)
    if decoding.read_samples_kernel(data, end, head, sample_start, *axis, ts_ms, values, order) != decoding.OK:
        raise _corrupt(value, "columns do not hold the samples")
    return Fragment(*_place(value, head), series_id, sample_start, ts_ms, values, order)


class _Encoder:
    """The columns and axes of one fragment, encoded once."""

    def __init__(self, fragment: Fragment, window_ms: int) -> None:
        # Kernels are compiled for contiguous arrays.
        fragment = Fragment(
            fragment.pack_id,
            fragment.window_start_ms,
            np.ascontiguousarray(fragment.series_id),
            np.ascontiguousarray(fragment.sample_start),
            fragment.ts_ms,
            np.ascontiguousarray(fragment.value),
            np.ascontiguousarray(fragment.order),
            fragment.details,
        )
        self._fragment = fragment
        self._window_ms = window_ms
        starts, series, samples = fragment.sample_start, fragment.series, fragment.samples
        relative = fragment.ts_ms - fragment.window_start_ms
        assert relative.min() >= 0, "samples before the window"
        assert relative.max() < window_ms, "samples after the window"
        working = scratch(int(np.diff(starts).max()))
        self._columns = np.empty(values_bound(samples) + series, np.uint8)
        self._column_end = np.empty(series, np.int64)
        encode_columns_kernel(starts, fragment.value, self._columns, self._column_end, working)
        self._axis_of, self._axis_series = np.empty(series, np.int64), np.empty(series, np.int64)
        table = np.zeros(1 << (2 * series).bit_length(), np.int64)
        axes = share_axes_kernel(starts, relative, self._axis_of, self._axis_series, table)
        longest = np.diff(starts)[self._axis_series[:axes]]
        self._axis_data = np.empty(sum(map(times_bound, longest.tolist())), np.uint8)
        self._axis_end = np.empty(axes, np.int64)
        encode_axes_kernel(starts, relative, self._axis_series, axes, self._axis_data, self._axis_end, working)
        self._details: EncodedDetails | None = None
        if fragment.details is not None:
            self._details = EncodedDetails(fragment.details, fragment.ts_ms, fragment.value, starts, dense=True)

    def parts(self, part_bytes_max: int) -> list[bytes]:
        fragment = self._fragment
        cuts, bounds = np.empty(fragment.series, np.int64), np.empty(fragment.series, np.int64)
        details = self._details
        count = cut_parts_kernel(
            fragment.sample_start,
            fragment.order,
            self._column_end,
            self._axis_of,
            self._axis_end,
            _NO_DETAILS if details is None else details.bytes_bound(),
            _NO_DETAILS if details is None else details.bucket_counts(),
            part_bytes_max,
            cuts,
            bounds,
        )
        made: list[bytes] = []
        first = 0
        for last, bound in zip(cuts[:count].tolist(), bounds[:count].tolist(), strict=True):
            if bound >= 0:
                made.append(self._part(first, last, bound))
            elif fragment.sample_start[last] - fragment.sample_start[first] == 1:
                made.append(self._part(first, last, PART_BYTES_MIN))
            else:
                for half in _halves(fragment.part(first, last)):
                    made += _Encoder(half, self._window_ms).parts(part_bytes_max)
            first = last
        return made

    def _part(self, first: int, last: int, bound: int) -> bytes:
        fragment = self._fragment
        out = np.empty(bound, np.uint8)
        size = write_part_kernel(
            np.uint64(fragment.pack_id),
            self._window_ms,
            fragment.window_start_ms // self._window_ms,
            fragment.series_id,
            fragment.sample_start,
            fragment.order,
            first,
            last,
            self._columns,
            self._column_end,
            self._axis_of,
            self._axis_data,
            self._axis_end,
            self._axis_series,
            out,
        )
        chunk = out[:size].tobytes()
        details = [] if self._details is None else self._details.sections(first, last)
        return add_details(chunk, details) if details else chunk


def _halves(series: Fragment) -> list[Fragment]:
    """The two halves of one series' samples."""
    middle = series.samples // 2
    return [
        Fragment(
            series.pack_id,
            series.window_start_ms,
            series.series_id,
            np.array([0, last - first], np.int64),
            series.ts_ms[first:last],
            series.value[first:last],
            series.order[first:last],
            None if series.details is None else series.details.part(first, last),
        )
        for first, last in ((0, middle), (middle, series.samples))
    ]


def _corrupt(value: bytes, why: str) -> CorruptData:
    return CorruptData(f"chunk of {len(value)} bytes is corrupt: {why}", reason="corrupt_chunk")
