"""Packs in history's series index, each with its log partition and the time in which it had series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from spark_backfill.failures import quoted_errors
from spark_backfill.places import Places
from tsdb.history.interface import WindowRange
from tsdb.model.window import EPOCH_MS

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

Epochs = tuple[int, int]  # First and last index epoch, both included.
_Name = tuple[int, bytes]  # Index epoch and metric name.


@dataclass(frozen=True, slots=True)
class PackSpan:
    """A pack of a log partition. All its samples lie within [start_ms, end_ms)."""

    pack_id: int
    partition: int
    start_ms: int
    end_ms: int

    def windows(self, span: WindowRange, window_ms: int) -> WindowRange:
        """The pack's windows within a span; an empty range where pack and span do not overlap."""
        start_ms, end_ms = max(span.start_ms, self.start_ms), min(span.end_ms, self.end_ms)
        return WindowRange.touching(start_ms, end_ms, window_ms)


def packs_of(context: SparkContext, places: Places, span: WindowRange, tasks: int) -> RDD[PackSpan]:
    """Every pack with a series in the index epochs that touch the span, each once, spread over `tasks` tasks.

    The driver reads epochs and metric names only. Raises as history does.
    """
    names = names_of(places, span)
    found = context.parallelize(names, tasks).mapPartitions(partial(_packs_in, places))
    return found.reduceByKey(_both, tasks).map(_pack_span)


def names_of(places: Places, span: WindowRange) -> list[tuple[int, bytes]]:
    """(epoch, metric name) of all series that may have samples in the span. Raises as history does."""
    with places.open_history() as history:
        epochs = [epoch for epoch in history.epochs() if _touches(epoch, span)]
        return [(epoch, name) for epoch in epochs for name in history.metric_names(epoch)]


def _touches(epoch: int, span: WindowRange) -> bool:
    # The phase of a series shifts its epochs into the past by less than one epoch.
    return (epoch - 1) * EPOCH_MS < span.end_ms and (epoch + 1) * EPOCH_MS > span.start_ms


def _packs_in(places: Places, names: Iterable[_Name]) -> Iterator[tuple[tuple[int, int], Epochs]]:
    with quoted_errors(), places.open_history() as history:
        for epoch, name in names:
            rows = history.series(epoch, name)
            pairs = np.unique(np.stack([rows.pack_id, rows.partition.astype(np.uint64)]), axis=1)
            for pack_id, partition in pairs.T.tolist():
                yield (pack_id, partition), (epoch, epoch)


def _both(one: Epochs, other: Epochs) -> Epochs:
    return min(one[0], other[0]), max(one[1], other[1])


def _pack_span(found: tuple[tuple[int, int], Epochs]) -> PackSpan:
    (pack_id, partition), (first, last) = found
    return PackSpan(pack_id, partition, (first - 1) * EPOCH_MS, (last + 1) * EPOCH_MS)
