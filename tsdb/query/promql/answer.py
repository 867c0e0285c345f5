"""Answers Reader.Query: sends the result of an evaluation as messages of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.model.details import SampleDetails
from tsdb.model.labels import canonical_labels
from tsdb.promql.evaluate.native.stored import details_of
from tsdb.promql.evaluate.query import EvaluationResult
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text
from tsdb.promql.evaluate.vectors.labels import LabelSets
from tsdb.v1 import reader_pb2
from tsdb.wire.histograms import encode_histograms

FRAME_VALUES = 128 * 1024  # Values of a frame: one MiB.


def messages(result: EvaluationResult, *, with_histograms: bool) -> Iterator[reader_pb2.QueryResponse]:
    """The whole answer, header and end included. with_histograms: whether the caller reads native histograms; raises
    EvaluationError for them where it does not."""
    if not with_histograms:
        result.check_floats("a client of this version")
    value, times_ms = result.value, result.times_ms
    header = reader_pb2.QueryHeader(
        start_ms=int(times_ms[0]),
        step_ms=int(times_ms[1] - times_ms[0]) if len(times_ms) > 1 else 0,
        steps=len(times_ms),
        warnings=result.warnings,
        infos=result.infos,
    )
    match value:
        case Text():
            header.kind, header.text = reader_pb2.TEXT, value.value
            frames: Iterator[reader_pb2.QueryFrame] = iter(())
        case Scalar():
            header.kind, header.series = reader_pb2.SCALAR, 1
            frames = iter([_frame([b""], np.ones(1, np.int64), value.values, present=np.ones((1, 1), np.bool_))])
        case Block():
            header.kind, header.series = reader_pb2.VECTOR, len(value)
            frames = _frames_of_block(value)
        case Samples():
            header.kind, header.series = reader_pb2.RANGES, len(value.labels)
            frames = _frames_of_samples(value)
    yield reader_pb2.QueryResponse(header=header)
    for frame in frames:
        yield reader_pb2.QueryResponse(frame=frame)
    yield reader_pb2.QueryResponse(complete=True)


def _frames_of_block(block: Block) -> Iterator[reader_pb2.QueryFrame]:
    rows = max(1, FRAME_VALUES // max(1, block.steps))
    for first in range(0, len(block), rows):
        part = slice(first, min(first + rows, len(block)))
        present = block.present[part]
        labels = _canonical(block.labels, range(part.start, part.stop))
        of = None if block.native is None else block.native.of[part][present]
        details = details_of(block.native, of)
        yield _frame(labels, present.sum(axis=1), block.values[part][present], details, present=present)


def _frames_of_samples(samples: Samples) -> Iterator[reader_pb2.QueryFrame]:
    first = 0
    while first < len(samples.labels):
        # A frame has as many series as fit, and at least one.
        end = int(np.searchsorted(samples.starts, samples.starts[first] + FRAME_VALUES, side="right")) - 1
        end = min(max(end, first + 1), len(samples.labels))
        part = slice(int(samples.starts[first]), int(samples.starts[end]))
        counts = np.diff(samples.starts[first : end + 1])
        labels = _canonical(samples.labels, range(first, end))
        details = details_of(samples.native, None if samples.native is None else samples.native.of[part])
        yield _frame(labels, counts, samples.values[part], details, ts_ms=samples.ts_ms[part])
        first = end


def _frame(
    labels: Sequence[bytes],
    counts: NDArray[np.int64],
    values: NDArray[np.float64],
    details: SampleDetails | None = None,
    *,
    present: NDArray[np.bool_] | None = None,
    ts_ms: NDArray[np.int64] | None = None,
) -> reader_pb2.QueryFrame:
    histograms = None
    if details is not None and details.histograms is not None and details.histogram_of is not None:
        histograms = encode_histograms(details.histograms, details.histogram_of)
        values = values.copy()
        values[details.histogram_of >= 0] = details.histograms.sums
    return reader_pb2.QueryFrame(
        labels=b"".join(labels),
        label_lengths=np.array([len(one) for one in labels], "<u4").tobytes(),
        counts=counts.astype("<u4").tobytes(),
        present=b"" if present is None else np.packbits(present, bitorder="little").tobytes(),
        ts_ms=b"" if ts_ms is None else ts_ms.astype("<i8").tobytes(),
        values=values.astype("<f8").tobytes(),
        histograms=histograms,
    )


def _canonical(labels: LabelSets, rows: range) -> list[bytes]:
    return [canonical_labels(labels.row(row)) for row in rows]
