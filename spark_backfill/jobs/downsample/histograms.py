"""Histograms: derive the samples of one resolution from the native histograms of one (pack, window). Pure.

A step is of floats or of histograms with one kind of buckets, as its last sample; samples of another kind are left out.
Stale markers are of no kind: they may be the last sample of a step, and take no other part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.columns.details import SHAPE_BUCKETS_MAX
from tsdb.model.arrays import joined_ranges
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.histograms import CUSTOM_BOUNDS, GAUGE, RESET, UNKNOWN, HistogramColumns, joined_histograms
from tsdb.model.resolution import AGGREGATES, COUNT, INCREASE, LAST, SUM
from tsdb.model.stale import STALE_BITS
from tsdb.promql.evaluate.native.histograms import NativeHistograms, from_columns, joined_natives
from tsdb.promql.evaluate.native.stored import stored_columns
from tsdb.promql.evaluate.ranges.start_times import are_start_resets

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

_FLOAT, _EXPONENTIAL, _CUSTOM, _NO_KIND = 0, 1, 2, -1


@dataclass(frozen=True, slots=True)
class LastHistograms:
    """The last histogram of each of k series, stale markers aside. series_id: uint64 (k,), ascending. ts_ms, start_ms:
    int64 (k,), ms since epoch UTC, start 0: unknown."""

    series_id: NDArray[np.uint64]
    ts_ms: Integers
    start_ms: Integers
    histograms: HistogramColumns


@dataclass(frozen=True, slots=True)
class HistogramSteps:
    """Derived samples, n in all, in no order. series_id: uint64 (n,), the source. aggregate: int64 (n,), an index of
    AGGREGATES. ts_ms: int64 (n,), start of the step. value: float64 (n,), the sum of a histogram."""

    series_id: NDArray[np.uint64]
    aggregate: Integers
    ts_ms: Integers
    value: NDArray[np.float64]
    details: SampleDetails | None


def split(fragment: Fragment, resolution_ms: int) -> tuple[Fragment | None, Fragment | None]:
    """(samples of the steps of floats, samples of the steps of histograms); None without such a step. Floats have no
    details."""
    details = fragment.details
    if details is None or details.histograms is None or details.histogram_of is None:
        return replace(fragment, details=None), None
    begins, step_of = _steps(fragment, resolution_ms)
    of_histogram = np.where(_has_bounds(details.histograms), _CUSTOM, _EXPONENTIAL)
    is_float, is_stale = details.histogram_of < 0, fragment.value.view(np.uint64) == STALE_BITS
    kind = np.where(is_float, _FLOAT, of_histogram[details.histogram_of])
    has_histogram = np.logical_or.reduceat(~is_float, begins)[step_of]
    # A step of floats alone counts its stale markers: they are values of NaN there.
    kind[is_stale & has_histogram] = _NO_KIND
    places = np.where(kind == _NO_KIND, -1, np.arange(len(kind)))
    last = np.maximum.reduceat(places, begins)
    kind_of_step = np.where(last >= 0, kind[last], _NO_KIND)[step_of]
    is_of_floats = kind_of_step == _FLOAT
    kept = (kind == kind_of_step) | (kind == _NO_KIND)
    floats = part_of(fragment, is_of_floats & (kind == _FLOAT))
    return None if floats is None else replace(floats, details=None), part_of(fragment, ~is_of_floats & kept)


def floats_of(fragment: Fragment) -> Fragment | None:
    """All samples that are floats, without details."""
    details = fragment.details
    if details is None or details.histogram_of is None:
        return replace(fragment, details=None)
    floats = part_of(fragment, details.histogram_of < 0)
    return None if floats is None else replace(floats, details=None)


def part_of(fragment: Fragment, where: Mask) -> Fragment | None:
    """The samples at which `where` holds, bool (samples,); None where it holds at no sample."""
    rows = np.flatnonzero(where)
    if not len(rows):
        return None
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(where)))[fragment.sample_start]
    filled = np.flatnonzero(np.diff(before))
    return Fragment(
        fragment.pack_id,
        fragment.window_start_ms,
        fragment.series_id[filled],
        np.append(before[filled], len(rows)),
        fragment.ts_ms[rows],
        fragment.value[rows],
        fragment.order[rows],
        None if fragment.details is None else fragment.details.take(rows),
    )


def last_histograms(fragment: Fragment, before: LastHistograms | None) -> LastHistograms | None:
    """The last histograms after this window. A series without one in the window keeps that of `before`."""
    live = _Live.of(fragment)
    kept = None if before is None else _of_series(before, fragment.series_id)
    if live is None:
        return kept
    ends = np.append(np.flatnonzero(np.diff(live.series)), len(live.series) - 1)
    found = LastHistograms(
        fragment.series_id[live.series[ends]], live.ts_ms[ends], live.start_ms[ends], live.columns.take(ends)
    )
    if kept is not None:
        kept = _of_series(kept, np.setdiff1d(kept.series_id, found.series_id))
    if kept is None or not len(kept.series_id):
        return found
    order = np.argsort(np.concatenate((kept.series_id, found.series_id)))
    return LastHistograms(
        np.concatenate((kept.series_id, found.series_id))[order],
        np.concatenate((kept.ts_ms, found.ts_ms))[order],
        np.concatenate((kept.start_ms, found.start_ms))[order],
        joined_histograms((kept.histograms, found.histograms)).take(order),
    )


def histogram_steps(fragment: Fragment, resolution_ms: int, before: LastHistograms | None) -> HistogramSteps:
    """The derived samples of steps of histograms.

    `last` is the last sample. It has the hint of a reset where the counter was reset since the last sample of the step
    before, and starts 1 ms before the step in which its counter started, because times of samples are those of steps.
    `count` and, of a gauge, `sum` are of all histograms of the step. `increase` of a counter is what it grew since the
    histogram before, resets included, as a gauge; a counter without one before counts if it started in the step.
    """
    begins, step_of = _steps(fragment, resolution_ms)
    step_ms = fragment.ts_ms[begins] // resolution_ms * resolution_ms
    series = _series_of(fragment)[begins]
    live = _Live.of(fragment)
    was_reset = np.zeros(len(begins), np.bool_)
    parts: list[tuple[str, Integers, NDArray[np.float64], SampleDetails | None]] = []
    if live is not None:
        pool = _Pool.of(live, fragment, before)
        groups, first, counts = np.unique(step_of[live.rows], return_index=True, return_counts=True)
        low, high = pool.places[first], pool.places[first + counts - 1]
        resets = np.append(pool.resets | (pool.hints == RESET), False)  # The end of the last step is a place too.
        was_reset[groups] = np.logical_or.reduceat(resets, np.stack((low, high + 1), axis=1).ravel())[::2]
        is_gauge = pool.hints[high] == GAUGE
        parts.append((COUNT, groups, counts.astype(np.float64), None))
        for aggregate, where, found in (
            (SUM, is_gauge, pool.sums(low[is_gauge], high[is_gauge])),
            (INCREASE, ~is_gauge, pool.increases(low[~is_gauge], high[~is_gauge], step_ms[groups[~is_gauge]])),
        ):
            fits = np.diff(found.starts) <= SHAPE_BUCKETS_MAX
            stored = stored_columns(found.take(np.flatnonzero(fits)).with_hint(GAUGE))
            parts.append((aggregate, groups[where][fits], stored.sums, _all(stored)))
    ends = np.append(begins[1:], fragment.samples) - 1
    lasts = _last_details(fragment, ends, was_reset, resolution_ms)
    parts.append((LAST, np.arange(len(begins)), fragment.value[ends], lasts))
    steps = np.concatenate([groups for _, groups, _, _ in parts])
    return HistogramSteps(
        fragment.series_id[series[steps]],
        np.concatenate([np.full(len(groups), AGGREGATES.index(aggregate)) for aggregate, groups, _, _ in parts]),
        step_ms[steps],
        np.concatenate([value for _, _, value, _ in parts]),
        joined_details([(len(groups), details) for _, groups, _, details in parts]),
    )


def _last_details(fragment: Fragment, ends: Integers, was_reset: Mask, resolution_ms: int) -> SampleDetails | None:
    found = None if fragment.details is None else fragment.details.take(ends)
    if found is None:
        return None
    start_ms, histograms = found.start_ms, found.histograms
    if start_ms is not None:
        start_ms = np.where(start_ms == 0, 0, start_ms // resolution_ms * resolution_ms - 1)
    if histograms is not None and found.histogram_of is not None:
        hints = np.where(was_reset[found.histogram_of >= 0], RESET, UNKNOWN)
        hints = np.where(histograms.hints == GAUGE, GAUGE, hints).astype(np.uint8)
        histograms = replace(histograms, hints=hints)
    return SampleDetails(start_ms, histograms, found.histogram_of)


@dataclass(frozen=True, slots=True)
class _Live:
    """Histograms of a fragment that are not stale markers. rows: their samples. series: index of the series."""

    rows: Integers
    series: Integers
    ts_ms: Integers
    start_ms: Integers
    columns: HistogramColumns

    @classmethod
    def of(cls, fragment: Fragment) -> _Live | None:
        details = fragment.details
        if details is None or details.histograms is None or details.histogram_of is None:
            return None
        rows = np.flatnonzero((details.histogram_of >= 0) & (fragment.value.view(np.uint64) != STALE_BITS))
        if not len(rows):
            return None
        start_ms = np.zeros(len(rows), np.int64) if details.start_ms is None else details.start_ms[rows]
        columns = details.histograms.take(details.histogram_of[rows])
        return cls(rows, _series_of(fragment)[rows], fragment.ts_ms[rows], start_ms, columns)


@dataclass(frozen=True, slots=True)
class _Pool:
    """Histograms of the window, each series after its last histogram of the window before, p in all.

    cells: int64 (p,), index in `natives`. resets: whether the counter was reset since the histogram before. has_before:
    whether there is one. places: int64, place of each histogram of the window.
    """

    natives: NativeHistograms
    cells: Integers
    ts_ms: Integers
    start_ms: Integers
    hints: Integers
    has_before: Mask
    resets: Mask
    places: Integers

    @classmethod
    def of(cls, live: _Live, fragment: Fragment, before: LastHistograms | None) -> _Pool:
        series, ts_ms, start_ms, natives = live.series, live.ts_ms, live.start_ms, from_columns(live.columns)
        known = None if before is None else _of_series(before, fragment.series_id)
        earlier = 0
        if known is not None:
            earlier = len(known.series_id)
            series = np.concatenate((np.searchsorted(fragment.series_id, known.series_id), series))
            ts_ms, start_ms = np.concatenate((known.ts_ms, ts_ms)), np.concatenate((known.start_ms, start_ms))
            natives = joined_natives([from_columns(known.histograms), natives])
        cells = np.argsort(series, kind="stable")
        series, ts_ms, start_ms = series[cells], ts_ms[cells], start_ms[cells]
        has_before = np.append(False, series[1:] == series[:-1])
        now = np.flatnonzero(has_before)
        hints, has_bounds = natives.hints[cells], natives.has_bounds[cells]
        resets = (has_before & (hints == RESET)) | are_start_resets(ts_ms, start_ms, has_before)
        # Samples may be missing between a sample and the one that its hint of no reset is about, so counts decide.
        resets[now] |= natives.without_resets().are_resets(cells[now], cells[now - 1])
        resets[now] |= has_bounds[now] != has_bounds[now - 1]
        places = np.flatnonzero(cells >= earlier)
        return cls(natives, cells, ts_ms, start_ms, hints, has_before, resets, places)

    def sums(self, low: Integers, high: Integers) -> NativeHistograms:
        """The sum of the places [low, high] of each step."""
        counts = high - low + 1
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        members = self.cells[joined_ranges(low, counts)]
        return _narrow(self.natives, starts, members, np.ones(len(members)))

    def increases(self, low: Integers, high: Integers, step_ms: Integers) -> NativeHistograms:
        """The increase over the places [low, high] of each step: the last one without that before the first one, and
        with each one before a reset."""
        at_resets = np.flatnonzero(self.resets)
        first, end = np.searchsorted(at_resets, low + 1), np.searchsorted(at_resets, high + 1)
        starts_inside = (self.start_ms[low] >= step_ms) & (self.start_ms[low] < self.ts_ms[low])
        has_base = np.where(self.has_before[low], ~self.resets[low], ~starts_inside | (self.start_ms[low] == 0))
        base = np.where(self.has_before[low], low - 1, low)
        more = end - first
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(1 + has_base + more)))
        members, weights = np.zeros(starts[-1], np.int64), np.ones(starts[-1])
        members[starts[:-1]] = self.cells[high]
        second = starts[:-1][has_base] + 1
        members[second], weights[second] = self.cells[base[has_base]], -1.0
        number = np.arange(more.sum()) - np.repeat(np.cumsum(more) - more, more)
        places = np.repeat(starts[:-1] + 1 + has_base, more) + number
        members[places] = self.cells[at_resets[np.repeat(first, more) + number] - 1]
        return _narrow(self.natives, starts, members, weights)


def _narrow(
    natives: NativeHistograms, starts: Integers, members: Integers, weights: NDArray[np.float64]
) -> NativeHistograms:
    """The weighted sum of each group, at the highest resolution with no more buckets than can be stored. Sums of
    custom buckets keep their resolution."""
    found = natives.combined(starts, members, weights)
    assert (found.failed < 0).all(), "a group has one kind of buckets"
    schema_max = found.histograms.schemas.copy()
    while True:
        wide = (np.diff(found.histograms.starts) > SHAPE_BUCKETS_MAX) & (schema_max != CUSTOM_BOUNDS)
        if not wide.any():
            return found.histograms
        schema_max[wide] -= 1
        found = natives.combined(starts, members, weights, schema_max=schema_max)


def _steps(fragment: Fragment, resolution_ms: int) -> tuple[Integers, Integers]:
    """(first sample of each step, step of each sample). A step belongs to one series."""
    series, step = _series_of(fragment), fragment.ts_ms // resolution_ms
    is_first = np.append(True, (series[1:] != series[:-1]) | (step[1:] != step[:-1]))
    return np.flatnonzero(is_first), np.cumsum(is_first) - 1


def _series_of(fragment: Fragment) -> Integers:
    return np.repeat(np.arange(fragment.series), np.diff(fragment.sample_start))


def _has_bounds(columns: HistogramColumns) -> Mask:
    return np.array([shape.has_bounds for shape in columns.shapes], np.bool_)[columns.shape_of]


def _of_series(last: LastHistograms, series_id: NDArray[np.uint64]) -> LastHistograms:
    rows = np.flatnonzero(np.isin(last.series_id, series_id))
    return LastHistograms(last.series_id[rows], last.ts_ms[rows], last.start_ms[rows], last.histograms.take(rows))


def _all(columns: HistogramColumns) -> SampleDetails | None:
    """Details of samples that are all histograms."""
    return SampleDetails(None, columns, np.arange(len(columns))) if len(columns) else None
