"""Rows of native histograms: adds the classic series of each histogram to the rows of floats.

A boundary of an earlier histogram of the same series that this one lacks gets a stale marker (ingest.bucket_memory).
A stale histogram has no buckets: each boundary gets one, as do `_sum`, `_count` and the bucket of +Inf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ingest.bucket_memory import BucketMemory
from ingest.remote_write.classic import ClassicHistogram, bounds_max, classic
from ingest.remote_write.histograms import WireHistograms, decode_histograms
from ingest.remote_write.wire import Wire
from ingest.remote_write.wire_kernels import ROW
from ingest.rows import Rows
from tsdb.model.errors import InvalidRequest
from tsdb.model.stale import STALE_BITS

LABEL_BYTES = 64  # Bytes of `le` and a suffix, beside the labels of the series.
_NAME = b"__name__"
_SEPARATOR = b"\xff"


class _Columns:
    """The classic rows of a request, one sample each."""

    def __init__(self) -> None:
        self.labels: list[bytes] = []
        self.ts_ms: list[int] = []
        self.bits: list[int] = []
        self.errors: dict[int, InvalidRequest] = {}

    def add(self, labels: bytes, ts_ms: int, bits: int) -> None:
        """bits: the float64 bits of the value, unsigned."""
        self.labels.append(labels)
        self.ts_ms.append(ts_ms)
        self.bits.append(bits)

    def refuse(self, ts_ms: int, error: InvalidRequest) -> None:
        self.errors[len(self.labels)] = error
        self.add(b"", ts_ms, 0)


def with_histograms(
    wire: Wire, body: bytes | bytearray, memory: BucketMemory, *, accept: bool, reserve: Callable[[int], None]
) -> Rows:
    """The rows of the wire, followed by the rows of its histograms. accept: False refuses each histogram by name.

    Raises InvalidRequest (malformed_request); Overloaded from `reserve`, which gets bytes before they are allocated.

    """
    if not len(wire.histograms):
        return wire.rows
    found = decode_histograms(body, wire.histograms, reserve)
    added = _Columns()
    for index, row in enumerate(wire.histograms[:, ROW].tolist()):
        labels, ts_ms = wire.rows.labels_of(row), int(found.ts_ms[index])
        refusal = wire.rows.errors.get(row)
        if refusal is None and not accept:
            text = f"native histograms are refused here (native_histograms = refuse); metric {metric_of(labels)!r}"
            refusal = InvalidRequest(text, reason="native_histogram")
        if refusal is None and index in found.errors:
            error = found.errors[index]
            refusal = InvalidRequest(f"{error.message}; metric {metric_of(labels)!r}", reason=error.reason)
        if refusal is not None:
            added.refuse(ts_ms, refusal)
            continue
        try:
            _add(added, labels, found, index, memory, reserve)
        except InvalidRequest as error:
            text = f"{error.message}; metric {metric_of(labels)!r}"
            added.refuse(ts_ms, InvalidRequest(text, reason=error.reason))
    return _joined(wire.rows, added)


def _add(
    added: _Columns,
    labels: bytes,
    found: WireHistograms,
    index: int,
    memory: BucketMemory,
    reserve: Callable[[int], None],
) -> None:
    columns, ts_ms = found.columns, int(found.ts_ms[index])
    # Reserved before the rows of the histogram exist, because each repeats the labels of the series.
    reserve((bounds_max(columns.shapes[columns.shape_of[index]]) + 3) * (len(labels) + LABEL_BYTES))
    rest, name = _split(labels)
    prefix = _SEPARATOR.join([*rest, _NAME, name])
    bucket = prefix + b"_bucket"
    total = int(columns.sums[index : index + 1].view(np.uint64)[0])
    if total == STALE_BITS:
        buckets, count = ClassicHistogram([], []), STALE_BITS
    else:
        buckets = classic(columns, index)
        count = int(columns.counts[index : index + 1].view(np.uint64)[0])
    bounds = [bound.encode() for bound in buckets.bounds]
    gone = memory.gone(bucket, frozenset(bounds), ts_ms)
    reserve(len(gone) * (len(labels) + LABEL_BYTES))
    le = bucket + _SEPARATOR + b"le" + _SEPARATOR
    for bound, bits in zip(bounds, np.array(buckets.cumulative, np.float64).view(np.uint64).tolist(), strict=True):
        added.add(le + bound, ts_ms, bits)
    for bound in gone:
        added.add(le + bound, ts_ms, STALE_BITS)
    added.add(le + b"+Inf", ts_ms, count)
    added.add(prefix + b"_sum", ts_ms, total)
    added.add(prefix + b"_count", ts_ms, count)


def with_bucket_exemplars(rows: Rows, memory: BucketMemory) -> Rows:
    """Give exemplars of native histograms to the classic series with their value: the bucket whose boundary is the
    first that is not below it. Such an exemplar is in a row without samples, of the histogram's own name."""
    found = rows.exemplars
    assert found is not None, "the caller has checked"
    added: list[bytes] = []
    row_of = found.row.copy()
    empty = rows.starts[found.row] == rows.starts[found.row + 1]
    for index in np.flatnonzero(empty).tolist():
        row = int(found.row[index])
        if row in rows.errors:
            continue
        bucket = _bucket_of(rows.labels_of(row), memory, float(found.values[index]))
        if bucket is not None:
            row_of[index] = len(rows) + len(added)
            added.append(bucket)
    if not added:
        return rows
    sizes = np.fromiter(map(len, added), np.int64, len(added))
    return replace(
        rows,
        labels=np.concatenate([rows.labels, np.frombuffer(b"".join(added), np.uint8)]),
        label_starts=np.concatenate([rows.label_starts, rows.label_starts[-1] + np.cumsum(sizes)]),
        starts=np.concatenate([rows.starts, np.full(len(sizes), rows.starts[-1])]),
        exemplars=replace(found, row=row_of),
    )


def _bucket_of(labels: bytes, memory: BucketMemory, value: float) -> bytes | None:
    """Labels of the bucket series; None for a series without a native histogram so far."""
    try:
        rest, name = _split(labels)
    except InvalidRequest:
        return None
    bucket = _SEPARATOR.join([*rest, _NAME, name]) + b"_bucket"
    bounds = memory.bounds_of(bucket)
    if not bounds:
        return None
    above = [bound for bound in bounds if float(bound) >= value]
    return _SEPARATOR.join([bucket, b"le", min(above, key=float) if above else b"+Inf"])


def _split(labels: bytes) -> tuple[list[bytes], bytes]:
    """Split the labels into the parts of all other labels, and the name of the metric. A histogram has no `le` of its
    sender."""
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


def metric_of(labels: bytes) -> str:
    """The name of the metric in the labels of a row, for messages."""
    parts = labels.split(_SEPARATOR)
    name = parts[parts.index(_NAME) + 1] if _NAME in parts[::2] else b""
    return name.decode(errors="replace")


def _joined(rows: Rows, added: _Columns) -> Rows:
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
