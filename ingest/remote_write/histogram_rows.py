"""Rows of native histograms: the classic series of each, added to the rows of floats.

A stale histogram has no buckets. The stale marker then goes to the bucket series of the last histogram of the same
series, which a bounded memory knows, and always to `_sum`, `_count` and the bucket of +Inf.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ingest.remote_write.native_histogram import STALE, ClassicHistogram, NativeHistogram, classic, parse_histogram
from ingest.remote_write.wire import Wire
from ingest.remote_write.wire_kernels import ROW, START, STOP
from ingest.rows import Rows
from tsdb.model.errors import InvalidRequest

REMEMBERED_SERIES_MAX = 10_000
LABEL_BYTES = 64  # Of `le` and a suffix, beside the labels of the series.
_NAME = b"__name__"
_SEPARATOR = b"\xff"


class BucketMemory:
    """The `le` of the last histogram of a series, for its stale marker. Thread-safe; the longest unused go first."""

    def __init__(self, series_max: int = REMEMBERED_SERIES_MAX) -> None:
        self._series_max = series_max
        self._lock = threading.Lock()
        self._bounds: OrderedDict[bytes, Sequence[str]] = OrderedDict()

    def put(self, labels: bytes, bounds: Sequence[str]) -> None:
        """`bounds`: those below +Inf."""
        with self._lock:
            self._bounds[labels] = bounds
            self._bounds.move_to_end(labels)
            if len(self._bounds) > self._series_max:
                self._bounds.popitem(last=False)

    def get(self, labels: bytes) -> Sequence[str]:
        """Empty for a series that is not remembered."""
        with self._lock:
            return self._bounds.get(labels, ())


class _Columns:
    """The classic rows of a request, one sample each."""

    def __init__(self) -> None:
        self.labels: list[bytes] = []
        self.ts_ms: list[int] = []
        self.bits: list[int] = []
        self.errors: dict[int, InvalidRequest] = {}

    def add(self, labels: bytes, ts_ms: int, bits: int) -> None:
        """bits: of the value, unsigned."""
        self.labels.append(labels)
        self.ts_ms.append(ts_ms)
        self.bits.append(bits)

    def refuse(self, ts_ms: int, error: InvalidRequest) -> None:
        self.errors[len(self.labels)] = error
        self.add(b"", ts_ms, 0)


def with_histograms(
    wire: Wire, body: bytes | bytearray, memory: BucketMemory, *, accept: bool, reserve: Callable[[int], None]
) -> Rows:
    """The rows of the wire and, after them, those of its histograms. accept: False refuses each histogram by name.

    Raises InvalidRequest (malformed_request); Overloaded from `reserve`, which gets bytes before they are allocated.
    """
    added = _Columns()
    for entry in wire.histograms.tolist():
        row, span = entry[ROW], slice(entry[START], entry[STOP])
        labels = wire.rows.labels[wire.rows.label_starts[row] : wire.rows.label_starts[row + 1]].tobytes()
        histogram = parse_histogram(bytes(body[span]))
        refusal = wire.rows.errors.get(row)
        if refusal is None and not accept:
            text = f"native histograms are refused here (native_histograms = refuse); metric {_metric(labels)!r}"
            refusal = InvalidRequest(text, reason="native_histogram")
        if refusal is not None:
            added.refuse(histogram.ts_ms, refusal)
            continue
        # Before the rows of the histogram exist: each repeats the labels of the series.
        reserve((histogram.bounds_max + 3) * (len(labels) + LABEL_BYTES))
        try:
            _add(added, labels, histogram, memory)
        except InvalidRequest as error:
            text = f"{error.message}; metric {_metric(labels)!r}"
            added.refuse(histogram.ts_ms, InvalidRequest(text, reason=error.reason))
    return _joined(wire.rows, added)


def _add(added: _Columns, labels: bytes, histogram: NativeHistogram, memory: BucketMemory) -> None:
    if histogram.stale:
        buckets = ClassicHistogram(memory.get(labels), [])
        cumulative = [STALE] * len(buckets.bounds)
        count, total = STALE, STALE
    else:
        buckets = classic(histogram)
        memory.put(labels, buckets.bounds)
        cumulative = np.array(buckets.cumulative, np.float64).view(np.uint64).tolist()
        count, total = int(np.float64(histogram.count).view(np.uint64)), histogram.sum_bits
    rest, name = _split(labels)
    prefix = _SEPARATOR.join([*rest, _NAME, name])
    bucket = prefix + b"_bucket" + _SEPARATOR + b"le" + _SEPARATOR
    for bound, bits in zip(buckets.bounds, cumulative, strict=True):
        added.add(bucket + bound.encode(), histogram.ts_ms, bits)
    added.add(bucket + b"+Inf", histogram.ts_ms, count)
    added.add(prefix + b"_sum", histogram.ts_ms, total)
    added.add(prefix + b"_count", histogram.ts_ms, count)


def _split(labels: bytes) -> tuple[list[bytes], bytes]:
    """The parts of all other labels, and the metric's name; a histogram has no `le` of its sender."""
    parts = labels.split(_SEPARATOR) if labels else []
    rest: list[bytes] = []
    name = b""
    for index in range(0, len(parts) - 1, 2):
        if parts[index] == _NAME:
            name = parts[index + 1]
        elif parts[index] != b"le":
            rest += parts[index : index + 2]
    if not name:
        raise InvalidRequest("no __name__ label", reason="labels_malformed")
    return rest, name


def _metric(labels: bytes) -> str:
    parts = labels.split(_SEPARATOR)
    name = parts[parts.index(_NAME) + 1] if _NAME in parts[::2] else b""
    return name.decode(errors="replace")


def _joined(rows: Rows, added: _Columns) -> Rows:
    if not added.labels:
        return rows
    sizes = np.fromiter(map(len, added.labels), np.int64, len(added.labels))
    label_starts = np.concatenate([rows.label_starts, rows.label_starts[-1] + np.cumsum(sizes)])
    starts = np.concatenate([rows.starts, rows.starts[-1] + 1 + np.arange(len(sizes))])
    values = np.concatenate([rows.values.view(np.uint64), np.array(added.bits, np.uint64)])
    return replace(
        rows,
        labels=np.concatenate([rows.labels, np.frombuffer(b"".join(added.labels), np.uint8)]),
        label_starts=label_starts,
        starts=starts,
        ts_ms=np.concatenate([rows.ts_ms, np.array(added.ts_ms, np.int64)]),
        values=values.view(np.float64),
        errors={**rows.errors, **{len(rows) + index: error for index, error in added.errors.items()}},
    )
