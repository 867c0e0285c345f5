"""Turns the histograms of a result into columns as they are stored and sent."""

from __future__ import annotations

import secrets

import numpy as np

from tsdb.model.arrays import splitmix64
from tsdb.model.details import SampleDetails, numbered
from tsdb.model.histograms import HistogramColumns, HistogramShape, spans_of
from tsdb.promql.evaluate.native.bucket_kernels import BOUNDS, COUNT, ORIGIN, SCHEMA, SUM, THRESHOLD, ZERO_COUNT
from tsdb.promql.evaluate.native.histograms import HistogramCells, Integers, NativeHistograms

_SEED = np.uint64(secrets.randbits(64))  # A sender cannot choose buckets whose hashes collide.


def details_of(native: HistogramCells | None, of: Integers | None) -> SampleDetails | None:
    """The details of the values whose histograms have these indexes, -1 for a float. None where all are floats."""
    if native is None or of is None or not (of >= 0).any():
        return None
    where = of >= 0
    return SampleDetails(None, stored_columns(native.histograms.take(of[where])), numbered(where))


def stored_columns(histograms: NativeHistograms) -> HistogramColumns:
    """The histograms as columns with float counts, in their order: the inverse of `from_columns`.

    Shapes are Python objects, so each is made once: histograms with equal buckets are found by hashes of their keys.
    """
    widths = np.diff(histograms.starts)
    row_of = np.repeat(np.arange(len(histograms)), widths)
    negative = np.bincount(row_of, histograms.keys < 0, len(histograms)).astype(np.int64)
    positive = widths - negative
    # Stored: the positive buckets and then the negative ones, both from zero on.
    within = np.arange(len(row_of)) - np.repeat(histograms.starts[:-1], widths)
    turned = within - positive[row_of]
    places = histograms.starts[:-1][row_of] + np.where(
        turned < 0, within + negative[row_of], negative[row_of] - 1 - turned
    )
    first, shape_of = _distinct(histograms, row_of, within)
    numbers = histograms.numbers
    return HistogramColumns(
        tuple(_shape(histograms, row) for row in first.tolist()),
        shape_of.astype(np.int32),
        histograms.starts,
        histograms.buckets[places],
        numbers[:, COUNT].copy(),
        numbers[:, SUM].copy(),
        numbers[:, ZERO_COUNT].copy(),
        histograms.hints.astype(np.uint8),
        np.zeros(len(histograms), np.bool_),
    )


def _distinct(histograms: NativeHistograms, row_of: Integers, within: Integers) -> tuple[Integers, Integers]:
    """(a histogram of each shape, the shape of each histogram)."""
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(splitmix64(histograms.keys.view(np.uint64) ^ _SEED))))
    identity = np.stack(
        (
            (sums[histograms.starts[1:]] - sums[histograms.starts[:-1]]).view(np.int64),
            np.diff(histograms.starts),
            histograms.whole[:, SCHEMA],
            histograms.whole[:, BOUNDS],
            np.ascontiguousarray(histograms.numbers[:, THRESHOLD]).view(np.int64),
        ),
        axis=1,
    )
    _, first, shape_of = np.unique(identity, axis=0, return_index=True, return_inverse=True)
    shape_of = shape_of.reshape(-1)
    model = first[shape_of][row_of]
    # A histogram with an equal hash and other keys gets a separate shape.
    differs = histograms.keys != histograms.keys[np.minimum(histograms.starts[model] + within, len(row_of) - 1)]
    odd = np.unique(row_of[differs])
    shape_of[odd] = len(first) + np.arange(len(odd))
    return np.concatenate((first, odd)), shape_of


def _shape(histograms: NativeHistograms, row: int) -> HistogramShape:
    keys = histograms.keys[histograms.starts[row] : histograms.starts[row + 1]]
    schema, bounds_of, _ = histograms.whole[row].tolist()
    return HistogramShape(
        schema,
        float(histograms.numbers[row, THRESHOLD]),
        spans_of(keys[keys > 0] - ORIGIN),
        spans_of(-keys[keys < 0][::-1] - ORIGIN),
        histograms.bounds[bounds_of] if bounds_of >= 0 else (),
    )
