"""Rows: the JSON of a vector or a matrix in pieces, so that a large answer is sent while it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import orjson
from numpy.typing import NDArray

from tsdb.api.prometheus.json.decimal_kernels import powers_of_ten
from tsdb.api.prometheus.json.histogram_kernels import BUCKET_BYTES_MAX, write_histograms_kernel
from tsdb.api.prometheus.json.histogram_kernels import POINT_BYTES_MAX as POINT_ROOM
from tsdb.api.prometheus.json.rows_kernels import (
    HEAD_BYTES,
    POINT_BYTES_MAX,
    PREFIX_BYTES,
    write_prefixes_kernel,
    write_rows_kernel,
)
from tsdb.promql.evaluate.native.histograms import NativeHistograms
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.promql.evaluate.vectors.labels import LabelSets, distinct

SMALL_CELLS = 256  # Labels of so few rows are faster in Python than as arrays.
KEPT_CHARS_MAX = 256  # Characters of a remembered label. With 4,096 of them the memory is some 4 MB at worst.
PIECE_BYTES = 1 << 18  # A piece of this size stays in the cache of a core until it is copied.
_VECTOR = (b'},"value":', b"}")
_MATRIX = (b'},"values":[', b"]}")
_NO_TIMES = np.empty(0, np.int64)
_NO_BYTES = np.empty(0, np.uint8)


def vector_rows(block: Block, times_ms: NDArray[np.int64]) -> Iterator[memoryview]:
    """The rows of an instant vector, which has one step.

    The request for a piece ends the validity of the one before.
    """
    return (
        _block_rows(block, times_ms, *_VECTOR)
        if block.native is None
        else _mixed_rows(block, times_ms, is_instant=True)
    )


def matrix_rows(block: Block, times_ms: NDArray[np.int64]) -> Iterator[memoryview]:
    """The rows of a vector over steps."""
    return (
        _block_rows(block, times_ms, *_MATRIX)
        if block.native is None
        else _mixed_rows(block, times_ms, is_instant=False)
    )


def sample_rows(samples: Samples) -> Iterator[memoryview]:
    """The rows of a range vector."""
    if samples.native is not None:
        return _mixed_sample_rows(samples)
    present = np.ones(len(samples.values), np.bool_)
    return _rows(samples.labels, samples.starts, samples.values, present, samples.ts_ms, _NO_BYTES, _NO_TIMES, *_MATRIX)


def _mixed_rows(block: Block, times_ms: NDArray[np.int64], *, is_instant: bool) -> Iterator[memoryview]:
    """The rows of a vector some of whose cells are histograms. A row has its floats first, as in Prometheus."""
    assert block.native is not None, "blocks of floats have another way"
    is_histogram = block.is_histogram
    floats = replace(block, present=block.present & ~is_histogram, native=None)
    comma = b""
    for row in range(len(block)):
        steps = np.flatnonzero(is_histogram[row])
        one = floats.subset(np.array([row]))
        yield from _mixed_row(
            comma,
            block.labels.row(row),
            b"".join(vector_rows(one, times_ms) if is_instant else matrix_rows(one, times_ms)),
            histogram_points(block.native.histograms, block.native.of[row, steps], times_ms[steps]),
            is_instant=is_instant,
            has_histograms=len(steps) > 0,
        )
        comma = b","


def _mixed_sample_rows(samples: Samples) -> Iterator[memoryview]:
    """The rows of a range vector some of whose samples are histograms."""
    native = samples.native
    assert native is not None, "samples that are floats have another way"
    comma = b""
    for row in range(len(samples.labels)):
        part = slice(samples.starts[row], samples.starts[row + 1])
        of, ts_ms, values = native.of[part], samples.ts_ms[part], samples.values[part]
        floats, here = of < 0, np.array([row])
        starts = np.array([0, np.count_nonzero(floats)], np.int64)
        one = Samples(samples.labels.subset(here), starts, ts_ms[floats], values[floats], samples.loses_name[here])
        yield from _mixed_row(
            comma,
            samples.labels.row(row),
            b"".join(sample_rows(one)),
            histogram_points(native.histograms, of[~floats], ts_ms[~floats]),
            is_instant=False,
            has_histograms=not floats.all(),
        )
        comma = b","


def _mixed_row(
    comma: bytes,
    labels: dict[str, str],
    floats: bytes,
    histograms: Iterator[bytes],
    *,
    is_instant: bool,
    has_histograms: bool,
) -> Iterator[memoryview]:
    """floats: the row with its floats alone; empty without them."""
    if not has_histograms:
        yield memoryview(comma + floats)
        return
    if not floats:
        floats = b'{"metric":{' + b",".join(_label(name, value) for name, value in sorted(labels.items())) + b"}}"
    yield memoryview(comma + floats[:-1] + (b',"histogram":' if is_instant else b',"histograms":['))
    first = True
    for piece in histograms:
        yield memoryview(piece[1:] if first else piece)  # The first point has no comma before it.
        first = False
    yield memoryview(b"}" if is_instant else b"]}")


def histogram_points(histograms: NativeHistograms, of: NDArray[np.int64], ts_ms: NDArray[np.int64]) -> Iterator[bytes]:
    """The points `,[time, {"count": ..., "sum": ..., "buckets": ...}]` of these histograms, in pieces."""
    sizes = POINT_ROOM + BUCKET_BYTES_MAX * (np.diff(histograms.starts)[of] + 1)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    arrays, first = histograms.arrays(), 0
    while first < len(of):
        end = max(first + 1, int(np.searchsorted(ends, ends[first] + PIECE_BYTES, side="right")) - 1)
        out = np.empty(int(ends[end] - ends[first]) + POINT_ROOM, np.uint8)
        size = write_histograms_kernel(*arrays, of[first:end], ts_ms[first:end], _powers(), out)
        yield out[:size].tobytes()
        first = end


def _block_rows(block: Block, times_ms: NDArray[np.int64], middle: bytes, end: bytes) -> Iterator[memoryview]:
    starts = np.arange(len(block) + 1, dtype=np.int64) * len(times_ms)
    prefixes = np.empty(len(times_ms) * PREFIX_BYTES, np.uint8)
    sizes = np.empty(len(times_ms), np.int64)
    write_prefixes_kernel(times_ms, prefixes, sizes)
    values, present = np.ascontiguousarray(block.values), np.ascontiguousarray(block.present)
    return _rows(block.labels, starts, values.reshape(-1), present.reshape(-1), _NO_TIMES, prefixes, sizes, middle, end)


def _rows(
    labels: LabelSets,
    starts: NDArray[np.int64],
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    ts_ms: NDArray[np.int64],
    prefixes: NDArray[np.uint8],
    prefix_sizes: NDArray[np.int64],
    middle: bytes,
    end: bytes,
) -> Iterator[memoryview]:
    texts, text_starts, numbers, longest = label_texts(labels)
    head_bytes = HEAD_BYTES + len(middle) + longest
    least_bytes = head_bytes + len(end) + 2 * POINT_BYTES_MAX
    whole_bytes = least_bytes + len(starts) * head_bytes + len(values) * POINT_BYTES_MAX
    out = np.empty(max(least_bytes, min(PIECE_BYTES, whole_bytes)), np.uint8)
    middle_bytes, end_bytes = _bytes_of(middle), _bytes_of(end)
    place = np.zeros(3, np.int64)
    while size := write_rows_kernel(
        place,
        starts,
        values,
        present,
        ts_ms,
        prefixes,
        prefix_sizes,
        numbers,
        texts,
        text_starts,
        middle_bytes,
        end_bytes,
        head_bytes,
        _powers(),
        out,
    ):
        yield out.data[:size]


def label_texts(labels: LabelSets) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32], int]:
    """(texts, starts, numbers, longest). texts has each label of the rows as `"name":"value"` once. numbers has for
    each row the numbers of its labels in the order of their names, int32 (rows, labels); -1 for an absent label. Of few
    rows, all labels of a row are one text. longest: bytes of the longest labels of a row, commas included, at most."""
    if labels.numbers.size <= SMALL_CELLS:
        return _texts_of_rows(labels)
    columns = sorted(range(len(labels.names)), key=labels.names.__getitem__)
    keys = [one + b":" for one in json_texts([labels.names[column] for column in columns])]
    values = labels.numbers[:, columns].astype(np.int64)
    end = int(values.max(initial=0)) + 1
    found, places = distinct((values + end * np.arange(len(columns))).reshape(-1))
    of_column, of_text = np.divmod(np.array(found, np.int64), end)
    texts = json_texts(labels.pool.texts(of_text.tolist()))
    parts = [keys[column] + text for column, text in zip(of_column.tolist(), texts, strict=True)]
    numbers = np.where(values == 0, -1, places.reshape(values.shape)).astype(np.int32)
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(list(map(len, parts)), out=starts[1:])
    return np.frombuffer(b"".join(parts), np.uint8), starts, numbers, _longest(starts, numbers)


def _texts_of_rows(labels: LabelSets) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32], int]:
    columns = sorted(range(len(labels.names)), key=labels.names.__getitem__)
    text, names = labels.pool.text, labels.names
    parts: list[bytes] = []
    starts, numbers = [0], []
    for row in labels.numbers.tolist():
        part = b",".join([_label(names[column], text(row[column])) for column in columns if row[column]])
        numbers.append(len(parts) if part else -1)
        parts.append(part)
        starts.append(starts[-1] + len(part))
    whole = np.frombuffer(b"".join(parts), np.uint8)
    longest = max(map(len, parts), default=0) + 1
    return whole, np.array(starts, np.int64), np.array(numbers, np.int32).reshape(-1, 1), longest


def _label(name: str, value: str) -> bytes:
    return (_kept_label if len(name) + len(value) <= KEPT_CHARS_MAX else _kept_label.__wrapped__)(name, value)


@lru_cache(maxsize=4096)
def _kept_label(name: str, value: str) -> bytes:
    """One label as `"name":"value"`. Dashboards show the same labels again and again."""
    return json_text(name) + b":" + json_text(value)


def json_texts(texts: Sequence[str]) -> list[bytes]:
    """`json_text` of each text."""
    try:
        return list(map(orjson.dumps, texts))
    except orjson.JSONEncodeError:
        return list(map(json_text, texts))


def json_text(text: str) -> bytes:
    """A string of JSON. Bytes that are not UTF-8 are replaced."""
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return orjson.dumps(valid_text(text))


def valid_text(text: str) -> str:
    """Replaces a text that has lone surrogates, each of which stands for a byte that is not UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _longest(starts: NDArray[np.int64], numbers: NDArray[np.int32]) -> int:
    """Bytes of the longest labels of a row, commas included, at most."""
    if not numbers.size:
        return 0
    sizes = np.append(np.diff(starts) + 1, 0)  # The number -1 selects the last element.
    return int(sizes[numbers].sum(axis=1).max())


@cache
def _bytes_of(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8)


@cache
def _powers() -> NDArray[np.uint64]:
    return powers_of_ten()
