"""Reduces the resolution of histograms that are finer than what is stored, as Prometheus does where it receives them.

Bucket i of a schema lies in bucket ((i - 1) >> k) + 1 of the schema that is lower by k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.model.arrays import csr_places
from tsdb.model.histograms import SCHEMA_MAX, HistogramColumns, HistogramShape, spans_of


def reduced(columns: HistogramColumns, finer_by: Mapping[int, int]) -> HistogramColumns:
    """The same samples, of which those of some shapes have fewer buckets.

    finer_by: by number of the shape, by how much its schema was finer than SCHEMA_MAX, which `shapes` has for it. The
    spans of a shape that a sample has must fit to its counts.
    """
    used = np.bincount(columns.shape_of, minlength=len(columns.shapes)) > 0
    shapes, firsts = [], []
    for number, shape in enumerate(columns.shapes):
        first, coarse = np.arange(shape.buckets if used[number] else 0), shape
        if used[number] and number in finer_by:
            first, coarse = _coarser(shape, finer_by[number])
        shapes.append(coarse)
        firsts.append(first)
    ends = np.cumsum([0, *map(len, firsts)], dtype=np.int64)
    places, starts = csr_places(ends, columns.shape_of.astype(np.int64))
    at = np.concatenate(firsts)[places] + np.repeat(columns.starts[:-1], np.diff(starts))
    # Added one after another, as there: the sums of floats depend on it. A count alone keeps its bits.
    lengths = np.diff(at, append=len(columns.buckets))
    sums = np.bincount(np.repeat(np.arange(len(at)), lengths), columns.buckets, len(at))
    buckets = np.where(lengths == 1, columns.buckets[at], sums)
    return replace(columns, shapes=tuple(shapes), starts=starts, buckets=buckets)


def _coarser(shape: HistogramShape, by: int) -> tuple[NDArray[np.int64], HistogramShape]:
    """(the first bucket of each new one, int64; the shape of the new buckets)."""
    index = (shape.indexes - 1 >> by) + 1
    is_new = np.ones(len(index), np.bool_)
    is_new[1:] = index[1:] != index[:-1]
    if shape.negative_buckets:
        is_new[shape.positive_buckets] = True
    first = np.flatnonzero(is_new)
    is_positive = first < shape.positive_buckets
    positive, negative = spans_of(index[first[is_positive]]), spans_of(index[first[~is_positive]])
    return first, HistogramShape(SCHEMA_MAX, shape.zero_threshold, positive, negative)
