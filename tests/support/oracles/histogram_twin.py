"""Histograms as plain values, and derived series of them by one pass over the samples of a window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from support.oracles.fragment_twin import bits, fragment_of
from tsdb.codec.chunk.chunk import Fragment
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import (
    CUSTOM_BOUNDS,
    GAUGE,
    RESET,
    UNKNOWN,
    HistogramColumns,
    HistogramShape,
    joined_histograms,
)
from tsdb.model.stale import STALE

Key = tuple[int, int]  # (series, time)


@dataclass(frozen=True)
class Hist:
    """A histogram. counts: by the index of the positive bucket. start_ms: 0: unknown. is_stale: a stale marker."""

    schema: int = 0
    counts: Mapping[int, float] = field(default_factory=dict)
    zero: float = 0.0
    sum: float = 0.0
    hint: int = UNKNOWN
    start_ms: int = 0
    bounds: tuple[float, ...] = ()
    is_stale: bool = False

    @property
    def count(self) -> float:
        return self.zero + sum(self.counts.values())

    @property
    def kind(self) -> str:
        return "custom" if self.schema == CUSTOM_BOUNDS else "exponential"

    def at(self, schema: int) -> dict[int, float]:
        """The counts that are not 0, at a lower resolution."""
        found: dict[int, float] = {}
        for index, count in self.counts.items():
            place = index if self.schema == schema else ((index - 1) >> (self.schema - schema)) + 1
            found[place] = found.get(place, 0.0) + count
        return {index: count for index, count in found.items() if count}

    def plus(self, other: Hist, times: float = 1.0) -> Hist:
        """The sum with `times` times another one, as a gauge."""
        schema = min(self.schema, other.schema)
        counts = self.at(schema)
        for index, count in other.at(schema).items():
            counts[index] = counts.get(index, 0.0) + times * count
        total = self.sum + times * other.sum
        return Hist(schema, counts, self.zero + times * other.zero, total, GAUGE, bounds=self.bounds)

    def is_reset_after(self, before: Hist, before_ms: int, ts_ms: int) -> bool:
        """Whether the counter was reset since the histogram before it."""
        if self.hint == RESET or self.kind != before.kind:
            return True
        if 0 != self.start_ms < ts_ms and (
            self.start_ms > before_ms or (self.start_ms == before_ms and 0 != before.start_ms < before_ms)
        ):
            return True
        if self.schema > before.schema or self.count < before.count or self.zero < before.zero:
            return True
        now = self.at(self.schema)
        return any(now.get(index, 0.0) < count for index, count in before.at(self.schema).items())


Sample = float | Hist
Last = dict[int, tuple[int, Hist]]  # (time, histogram) by series
Steps = dict[tuple[str, int, int], Sample]  # (aggregate, series, start of the step) -> value


def detailed_fragment(samples: Mapping[Key, Sample], pack_id: int = 1, window_start_ms: int = 0) -> Fragment:
    """The fragment of these samples."""
    ordered = [samples[key] for key in sorted(samples)]
    values = {key: (1, bits(_sum(value) if isinstance(value, Hist) else value)) for key, value in samples.items()}
    found = fragment_of(values, pack_id, window_start_ms)
    hists = [value for value in ordered if isinstance(value, Hist)]
    if not hists:
        return found
    places = iter(range(len(hists)))
    of = np.array([next(places) if isinstance(value, Hist) else -1 for value in ordered], np.int64)
    starts = np.array([value.start_ms if isinstance(value, Hist) else 0 for value in ordered], np.int64)
    columns = joined_histograms(list(map(_columns, hists)))
    return replace(found, details=SampleDetails(starts if starts.any() else None, columns, of))


def samples_in(fragment: Fragment) -> dict[Key, Sample]:
    """The samples of a fragment."""
    series = np.repeat(fragment.series_id, np.diff(fragment.sample_start)).tolist()
    keys = list(zip(series, fragment.ts_ms.tolist(), strict=True))
    found: dict[Key, Sample] = dict(zip(keys, fragment.value.tolist(), strict=True))
    details = fragment.details
    if details is None or details.histograms is None or details.histogram_of is None:
        return found
    columns = details.histograms
    for row, of in enumerate(details.histogram_of.tolist()):
        if of < 0:
            continue
        shape = columns.shapes[columns.shape_of[of]]
        buckets = columns.buckets[columns.starts[of] : columns.starts[of + 1]].tolist()
        assert bits(float(columns.sums[of])) == bits(float(fragment.value[row])), "the value of a histogram is its sum"
        found[keys[row]] = Hist(
            shape.schema,
            {index: count for index, count in zip(shape.indexes.tolist(), buckets, strict=True) if count},
            float(columns.zero_counts[of]),
            float(columns.sums[of]),
            int(columns.hints[of]),
            0 if details.start_ms is None else int(details.start_ms[row]),
            shape.bounds,
            bits(float(columns.sums[of])) == bits(STALE),
        )
    return found


def histogram_steps_twin(samples: Mapping[Key, Sample], last: Last, resolution_ms: int) -> Steps:
    """Derived samples of the steps of histograms. `last` is updated for the next window: to the last histogram of each
    series, also of one that its step leaves out."""
    found: Steps = {}
    steps: dict[Key, list[tuple[int, Sample]]] = {}
    for series, ts_ms in sorted(samples):
        steps.setdefault((series, ts_ms // resolution_ms * resolution_ms), []).append((ts_ms, samples[series, ts_ms]))
    newest: Last = {}
    for (series, step_ms), members in steps.items():
        if any(isinstance(value, Hist) for _, value in members) and not _is_of_floats(members):
            kept = _of_one_kind(members)
            found |= _step(series, step_ms, kept, last, resolution_ms)
            _keep_last(series, kept, last)
        _keep_last(series, members, newest)
    for series in last.keys() - newest.keys():
        if series in {of for of, _ in samples}:
            newest[series] = last[series]
    last.clear()
    last.update(newest)
    return found


def _keep_last(series: int, members: Sequence[tuple[int, Sample]], last: Last) -> None:
    for ts_ms, value in members:
        if isinstance(value, Hist) and not value.is_stale:
            last[series] = ts_ms, value


def _step(series: int, step_ms: int, members: Sequence[tuple[int, Sample]], last: Last, resolution_ms: int) -> Steps:
    live = [(ts_ms, value) for ts_ms, value in members if isinstance(value, Hist) and not value.is_stale]
    before = last.get(series)
    was_reset, total, grown = False, None, None
    for ts_ms, value in live:
        if before is None:
            starts_here = 0 != value.start_ms < ts_ms and value.start_ms >= step_ms
            more = value if starts_here else value.plus(value, -1.0)
            was_reset |= value.hint == RESET
        elif value.is_reset_after(before[1], *(before[0], ts_ms)):
            more, was_reset = value, True
        else:
            more = value.plus(before[1], -1.0)
        total = value if total is None else total.plus(value)
        grown = more if grown is None else grown.plus(more)
        before = ts_ms, value
    found: Steps = {}
    final = members[-1][1]
    if isinstance(final, Hist):
        hint = GAUGE if final.hint == GAUGE else RESET if was_reset else UNKNOWN
        start_ms = final.start_ms and final.start_ms // resolution_ms * resolution_ms - 1
        final = replace(final, hint=hint, start_ms=start_ms)
    found["last", series, step_ms] = final
    if total is not None and grown is not None:
        found["count", series, step_ms] = float(len(live))
        name, value = ("sum", total) if live[-1][1].hint == GAUGE else ("increase", grown)
        found[name, series, step_ms] = replace(value, hint=GAUGE, start_ms=0)
    return found


def _is_of_floats(members: Sequence[tuple[int, Sample]]) -> bool:
    kinds = [value for _, value in members if not _is_stale(value)]
    return bool(kinds) and not isinstance(kinds[-1], Hist)


def _of_one_kind(members: Sequence[tuple[int, Sample]]) -> list[tuple[int, Sample]]:
    """The members of the kind of the last one, and stale markers."""
    kinds = [value.kind for _, value in members if isinstance(value, Hist) and not value.is_stale]
    return [
        (ts_ms, value)
        for ts_ms, value in members
        if _is_stale(value) or (isinstance(value, Hist) and value.kind == kinds[-1])
    ]


def _is_stale(value: Sample) -> bool:
    return value.is_stale if isinstance(value, Hist) else bits(value) == bits(STALE)


def _sum(value: Hist) -> float:
    return STALE if value.is_stale else value.sum


def _columns(value: Hist) -> HistogramColumns:
    spans: tuple[tuple[int, int], ...] = ()
    counts: list[float] = []
    if value.counts and not value.is_stale:
        low, high = min(value.counts), max(value.counts)
        spans, counts = ((low, high - low + 1),), [value.counts.get(index, 0.0) for index in range(low, high + 1)]
    shape = HistogramShape(0) if value.is_stale else HistogramShape(value.schema, positive=spans, bounds=value.bounds)
    return HistogramColumns(
        (shape,),
        np.zeros(1, np.int32),
        np.array([0, len(counts)], np.int64),
        np.array(counts, np.float64),
        np.array([0.0 if value.is_stale else value.count]),
        np.array([_sum(value)]),
        np.array([0.0 if value.is_stale else value.zero]),
        np.array([value.hint], np.uint8),
        np.ones(1, np.bool_),
    )


def same(found: Sample, want: Sample) -> bool:
    """Whether two samples are equal; the first one may have a higher resolution."""
    if not (isinstance(found, Hist) and isinstance(want, Hist)):
        return not isinstance(found, Hist) and not isinstance(want, Hist) and bits(found) == bits(want)
    if found.is_stale or want.is_stale:
        return found.is_stale == want.is_stale
    if found.schema < want.schema or found.kind != want.kind or found.bounds != want.bounds:
        return False
    if math.isnan(found.sum) != math.isnan(want.sum) or (not math.isnan(want.sum) and found.sum != want.sum):
        return False
    pair = (found.at(want.schema), found.zero, found.hint, found.start_ms)
    return pair == (want.at(want.schema), want.zero, want.hint, want.start_ms)
