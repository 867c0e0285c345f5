"""Sources: packs of series that are not derived, with the labels of each series, and the series derived from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spark_backfill.failures import quoted_errors
from spark_backfill.packs import names_of
from spark_backfill.places import Places
from tsdb.history.interface import WindowRange
from tsdb.model.labels import series_id
from tsdb.model.placement import PlacementRule
from tsdb.model.resolution import AGGREGATES, derived_labels, is_derived
from tsdb.model.window import EPOCH_MS

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

Labels = dict[int, bytes]
"""Canonical labels by series id."""
_Found = tuple[Labels, int, int]  # Labels, first epoch, last epoch.


@dataclass(frozen=True, slots=True)
class SourcePack:
    """A pack of a log partition and its series. All its samples lie within [start_ms, end_ms)."""

    pack_id: int
    partition: int
    labels: Labels
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class DerivedSeries:
    """One series derived from a source series. pack_id: pack of the derived series."""

    series_id: int
    pack_id: int
    canonical: bytes


def derived_series(source: bytes, resolution: str, rule: PlacementRule) -> dict[str, DerivedSeries]:
    """The derived series of a source at one resolution, by aggregate."""
    made = {}
    for aggregate in AGGREGATES:
        canonical = derived_labels(source, resolution, aggregate)
        made[aggregate] = DerivedSeries(series_id(canonical), rule.place(canonical).pack_id, canonical)
    return made


def source_packs(context: SparkContext, places: Places, span: WindowRange, tasks: int) -> RDD[SourcePack]:
    """Every pack with source series in the index epochs that touch the span, each once, spread over `tasks` tasks. The
    driver reads names and epochs only.
    """
    found = context.parallelize(names_of(places, span), tasks).mapPartitions(partial(_found_in, places))
    return found.reduceByKey(_both, tasks).map(_pack)


def _found_in(places: Places, names: Iterable[tuple[int, bytes]]) -> Iterator[tuple[tuple[int, int], _Found]]:
    with quoted_errors(), places.open_history() as history:
        for epoch, name in names:
            rows = history.series(epoch, name)
            packs: dict[tuple[int, int], Labels] = {}
            columns = (rows.series_id.tolist(), rows.pack_id.tolist(), rows.partition.tolist(), rows.labels)
            for series, pack_id, partition, canonical in zip(*columns, strict=True):
                if not is_derived(canonical):
                    packs.setdefault((pack_id, partition), {})[series] = canonical
            for place, labels in packs.items():
                yield place, (labels, epoch, epoch)


def _both(one: _Found, other: _Found) -> _Found:
    return one[0] | other[0], min(one[1], other[1]), max(one[2], other[2])


def _pack(found: tuple[tuple[int, int], _Found]) -> SourcePack:
    (pack_id, partition), (labels, first, last) = found
    # The phase of a series shifts its epochs into the past by less than one epoch.
    return SourcePack(pack_id, partition, labels, (first - 1) * EPOCH_MS, (last + 1) * EPOCH_MS)
