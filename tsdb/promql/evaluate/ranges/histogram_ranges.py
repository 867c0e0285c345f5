"""Functions over ranges with histograms. A range may have floats and histograms; each function has its rule for that.

All windows of all series are computed at once: a window is a pair of places among the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.model.arrays import csr_places, joined_ranges
from tsdb.model.histograms import GAUGE
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.native.combine_kernels import (
    RECONCILED_ADDITION,
    RECONCILED_SUBTRACTION,
    SAW_NOT_RESET,
    SAW_RESET,
)
from tsdb.promql.evaluate.native.histograms import (
    CombinedHistograms,
    HistogramCells,
    NativeHistograms,
    PendingHistograms,
    joined_combined,
    joined_natives,
    parts_of,
)
from tsdb.promql.evaluate.native.windows import SampleWindows, interpolated, places_of, windows_of
from tsdb.promql.evaluate.ranges import range_kernels as codes
from tsdb.promql.evaluate.ranges.start_times import start_overlaps, start_resets
from tsdb.promql.evaluate.selection.select import Ranges
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, LabelSets
from tsdb.promql.syntax.tree import Call, Extension, Subquery
from tsdb.selector.tokens import TextSpan

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

MEMBERS_MAX = 1 << 22  # Samples that windows visit at once: 32 MiB of their indexes.
_OF_ALL = (codes.COUNT, codes.PRESENT, codes.TS_OF_FIRST, codes.TS_OF_LAST)  # These count samples of either kind.
_RATES = (codes.RATE, codes.INCREASE, codes.DELTA)
_COUNTERS = (codes.RATE, codes.INCREASE, codes.IRATE)


def span_of(node: Call) -> TextSpan:
    """The position of the range. Prometheus no longer knows that of a subquery when it evaluates the function."""
    return TextSpan(0, 0) if isinstance(node.args[0], Subquery) else node.args[0].span


@dataclass(frozen=True, slots=True)
class RangeAnnotations:
    """Adds annotations that name metrics."""

    context: EvaluationContext
    node: Call
    labels: LabelSets

    def warn(self, problem: str, rows: NDArray[np.int64]) -> None:
        """Add a warning for each metric of these rows."""
        for name in self._names(rows):
            self.context.annotations.warn(f'{problem} "{name}"', span_of(self.node))

    def inform(self, problem: str, rows: NDArray[np.int64]) -> None:
        """Add an info for each metric of these rows."""
        for name in self._names(rows):
            self.context.annotations.inform(f'{problem} "{name}"', span_of(self.node))

    def warn_of_mix(self, where: Mask) -> None:
        """Warn of windows with floats and histograms, bool (series, steps)."""
        self.warn("encountered a mix of histograms and floats for metric name", np.flatnonzero(where.any(axis=1)))

    def warn_of_schemas(self, rows: NDArray[np.int64]) -> None:
        """Warn of exponential and custom buckets together."""
        self.warn(
            "vector contains a mix of histograms with exponential and custom buckets schemas for metric name", rows
        )

    def report(self, found: CombinedHistograms, *, is_aggregation: bool) -> None:
        """Add what combining histograms came upon."""
        report_combined(self.context, found, span_of(self.node), is_aggregation=is_aggregation)

    def _names(self, rows: NDArray[np.int64]) -> Iterable[str]:
        if not len(rows):
            return ()
        column = self.labels.column(METRIC_NAME)[rows]
        return self.labels.pool.texts(dict.fromkeys(column.tolist()))


def report_combined(
    context: EvaluationContext, found: CombinedHistograms, span: TextSpan, *, is_aggregation: bool
) -> None:
    """Add the annotations of combined histograms."""
    flags = found.flags
    if is_aggregation and ((flags & SAW_RESET > 0) & (flags & SAW_NOT_RESET > 0) & (found.failed < 0)).any():
        context.annotations.warn("conflicting counter resets during histogram aggregation", span)
    words = ("aggregation", "aggregation") if is_aggregation else ("subtraction", "addition")
    for flag, word in zip((RECONCILED_SUBTRACTION, RECONCILED_ADDITION), words, strict=True):
        if (flags & flag).any():
            context.annotations.inform(f"mismatched custom buckets were reconciled during {word}", span)


def over_histograms(
    context: EvaluationContext, node: Call, code: int, ranges: Ranges, compute: Callable[[Samples], Block]
) -> Block:
    """The values of ranges some of which have histograms. compute: the values of samples that all count as floats."""
    samples = ranges.samples
    native = samples.native
    assert native is not None, "ranges without histograms take the way of floats"
    if code in _OF_ALL:
        return compute(replace(samples, native=None))
    whole = _windows(samples, ranges)
    if code in (codes.LAST, codes.FIRST):
        block = compute(replace(samples, native=None))
        place = whole.high - 1 if code == codes.LAST else whole.low
        of = np.where(block.present, native.of[np.where(block.present, place, 0)], -1)
        return replace(block, native=replace(native, of=of))
    problems = RangeAnnotations(context, node, samples.labels)
    if code in (codes.RESETS, codes.CHANGES):
        return _turns(samples, native, whole, ranges, code)
    is_histogram = native.of >= 0
    floats, _of_floats = _only(samples, ~is_histogram)
    histograms, of_histograms = _only(samples, is_histogram)
    block = compute(floats)
    has_floats = _windows(floats, ranges).sizes > 0
    windows = _windows(histograms, ranges)
    has_histograms = windows.sizes > 0
    if code in (codes.IRATE, codes.IDELTA):
        return _instant(problems, block, samples, native, whole, code)
    mixed = has_floats & has_histograms
    if code not in (*_RATES, codes.SUM, codes.AVG):
        rows = np.flatnonzero(mixed.any(axis=1))
        problems.inform("ignored histograms in a range containing both floats and histograms for metric name", rows)
        return block
    problems.warn_of_mix(mixed)
    block = replace(block, present=block.present & ~has_histograms)
    cells = native.of[of_histograms]
    alone = has_histograms & ~has_floats
    if code in _RATES:
        series = _Series(native.histograms, cells, histograms)
        if ranges.extension is not Extension.NONE:
            return _extended_rates(problems, block, series, windows, alone, ranges, code)
        return _rates(problems, block, series, windows, alone, ranges, code)
    return _totals(problems, block, native.histograms, cells, windows, alone, is_mean=code == codes.AVG)


def warn_of_overlaps(context: EvaluationContext, node: Call, code: int, ranges: Ranges) -> None:
    """Warn of start timestamps before the sample before them. `rate` and `increase` may count such samples twice."""
    if code not in (codes.RATE, codes.INCREASE) or ranges.extension is not Extension.NONE:
        return
    samples = ranges.samples
    windows = _windows(samples, ranges)
    overlaps = np.concatenate(([0], np.cumsum(start_overlaps(samples))))
    found = overlaps[windows.high] > overlaps[np.minimum(windows.low + 1, windows.high)]
    if samples.native is not None:
        counts = np.concatenate(([0], np.cumsum(samples.native.of >= 0)))
        histograms = counts[windows.high] - counts[windows.low]
        found &= (histograms == 0) | (histograms == windows.sizes)
    rows = np.flatnonzero(found.any(axis=1))
    problem = "sample has start time that overlaps with previous sample timestamp for metric"
    RangeAnnotations(context, node, samples.labels).warn(problem, rows)


def _windows(samples: Samples, ranges: Ranges) -> SampleWindows:
    low_ms, high_ms = ranges.at_ms - ranges.before_ms, ranges.at_ms + ranges.after_ms
    return windows_of(samples.starts, samples.ts_ms, low_ms, high_ms)


def _only(samples: Samples, where: Mask) -> tuple[Samples, Integers]:
    """The samples of one kind, and their places among all."""
    starts = np.concatenate(([0], np.cumsum(where)))[samples.starts]
    start_ms = None if samples.start_ms is None else samples.start_ms[where]
    loses_name = samples.loses_name
    kept = Samples(samples.labels, starts, samples.ts_ms[where], samples.values[where], loses_name, start_ms=start_ms)
    return kept, np.flatnonzero(where)


def _with_cells(
    block: Block, source: NativeHistograms | PendingHistograms, rows: Integers, steps: Integers, good: Mask
) -> Block:
    """The block with these histograms, each at its row and step, where it is good."""
    of = np.full(block.values.shape, -1, np.int64)
    present = block.present.copy()
    of[rows[good], steps[good]] = np.flatnonzero(good)
    present[rows[good], steps[good]] = True
    return replace(block, present=present, native=HistogramCells(source, of))


def _totals(
    problems: RangeAnnotations,
    block: Block,
    histograms: NativeHistograms,
    cells: Integers,
    windows: SampleWindows,
    where: Mask,
    *,
    is_mean: bool,
) -> Block:
    """Evaluates sum_over_time and avg_over_time for windows of histograms alone."""
    rows, steps = np.nonzero(where)
    low, ends = windows.low[rows, steps], np.concatenate((np.zeros(1, np.int64), np.cumsum(windows.sizes[rows, steps])))
    context = problems.context
    parts: list[CombinedHistograms] = []
    held = 0
    for part in parts_of(ends, MEMBERS_MAX):
        context.check()
        starts = ends[part.start : part.stop + 1] - ends[part.start]
        sizes = np.diff(starts)
        members = cells[joined_ranges(low[part], sizes)]
        divisors = sizes.astype(np.float64) if is_mean else None
        done = histograms.combined(starts, members, np.ones(len(members)), divisors, admit=_beside(context, held))
        held += done.histograms.nbytes
        parts.append(done)
    if not parts:
        return block
    found = joined_combined(parts)
    problems.warn_of_schemas(np.unique(rows[found.failed >= 0]))
    problems.report(found, is_aggregation=True)
    return _with_cells(block, found.histograms, rows, steps, found.failed < 0)


def _beside(context: EvaluationContext, held: int) -> Callable[[int], None]:
    """Reserves bytes beside those that are held already. Raises what the memory in hand raises."""
    return lambda size: context.in_hand.admit(held + size)


@dataclass(frozen=True, slots=True)
class _Series:
    """Histograms of series: sample i has the histogram cells[i]."""

    histograms: NativeHistograms
    cells: Integers
    samples: Samples

    @property
    def ts_ms(self) -> Integers:
        """Time of each sample."""
        return self.samples.ts_ms

    def resets(self) -> Mask:
        """Whether the counter was reset between a sample and the one before it in its series."""
        found = np.zeros(len(self.cells) + 1, np.bool_)  # One more: the places after the last sample.
        is_first = found.copy()
        is_first[self.samples.starts] = True
        places = np.flatnonzero(~is_first)
        found[places] = self.histograms.are_resets(self.cells[places], self.cells[places - 1])
        return found

    def zero_ms(self, low: Integers, after_ms: Integers) -> Integers:
        """The start timestamp of each of these samples, when the counter was empty, where that is after a time and
        before the sample; otherwise the time of the sample."""
        ts_ms, start_ms = self.ts_ms[low], self.samples.start_ms
        if start_ms is None:
            return ts_ms
        starts = start_ms[low]
        return np.where((starts != 0) & (starts > after_ms), np.minimum(starts, ts_ms), ts_ms)

    def at(self, before: Integers, after: Integers, times_ms: Integers, *, is_counter: bool) -> CombinedHistograms:
        """The histogram at each time between two samples, or that of the sample where both are the same."""
        pairs = self.cells[before], self.cells[after]
        spans = self.ts_ms[before], self.ts_ms[after]
        return interpolated(self.histograms, pairs, spans, times_ms, np.full(len(before), is_counter))


def _rates(
    problems: RangeAnnotations,
    block: Block,
    series: _Series,
    windows: SampleWindows,
    where: Mask,
    ranges: Ranges,
    code: int,
) -> Block:
    """rate, increase and delta: the last histogram without the first one, and with those before each reset.

    As in Prometheus (promql/functions.go, `histogramRate`), a counter that was reset after its first sample rises from
    an empty histogram like its second one. A counter that starts inside of the window is empty at its start.
    """
    rows, steps = np.nonzero(where)
    low, high = windows.low[rows, steps], windows.high[rows, steps]
    histograms, cells = series.histograms, series.cells
    is_counter = code in _COUNTERS
    zero_ms = series.zero_ms(low, ranges.at_ms[steps] - ranges.range_ms) if is_counter else series.ts_ms[low]
    used = (high - low > 1) | (zero_ms < series.ts_ms[low])
    rows, steps, low, high, zero_ms = (part[used] for part in (rows, steps, low, high, zero_ms))
    starts_inside = zero_ms < series.ts_ms[low]
    resets = series.resets() if is_counter else np.zeros(len(cells) + 1, np.bool_)
    if is_counter and len(begins_of := start_resets(series.samples)):
        resets[:-1] |= begins_of
    is_one = high - low == 1
    begins = resets[np.minimum(low + 1, len(cells))] & ~is_one
    base, last = low + begins, high - 1
    good = is_one.copy()
    places = low[~is_one], base[~is_one], last[~is_one], high[~is_one]
    good[~is_one] = _check_windows(problems, series, rows[~is_one], places, is_counter=is_counter)

    at_resets = np.flatnonzero(resets)
    first_reset, end_reset = np.searchsorted(at_resets, base + 1), np.searchsorted(at_resets, high)
    more = np.maximum(end_reset - first_reset, 0)
    adds_first = starts_inside & ~is_one
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(more + 2 + adds_first)))
    members, weights = np.zeros(starts[-1], np.int64), np.ones(starts[-1])
    members[starts[:-1]], members[starts[:-1] + 1] = cells[last], cells[base]
    weights[starts[:-1] + 1] = np.where(begins | is_one, 0.0, -1.0)
    members[starts[1:][adds_first] - 1] = cells[low[adds_first]]
    number = np.arange(more.sum()) - np.repeat(np.cumsum(more) - more, more)
    members[np.repeat(starts[:-1] + 2, more) + number] = cells[at_resets[np.repeat(first_reset, more) + number] - 1]
    schemas = histograms.schemas[cells]
    lowest = np.minimum(schemas[last], schemas[base]) if len(rows) else np.zeros(0, np.int64)
    if is_counter and len(rows):
        ends = np.stack((np.minimum(low + 1, last), high), axis=1).reshape(-1)
        lowest = np.minimum(lowest, np.minimum.reduceat(np.append(schemas, 0), ends)[::2])
    rates = _Rates(series, ranges, code, rows, steps, low, last, zero_ms, starts, members, weights, lowest)
    admit = _beside(problems.context, 0)
    if histograms.has_bounds.any():
        found, combined = rates.made(np.arange(len(rows)), admit)
        good &= combined.failed < 0
        problems.report(combined, is_aggregation=False)
        return _with_cells(block, found, rows, steps, good)
    # Exponential buckets always fit together, and their sums have no annotations.
    pending = PendingHistograms(len(rows), histograms.nbytes, lambda *given: rates.made(*given)[0], admit)
    return _with_cells(block, pending, rows, steps, good)


@dataclass(frozen=True, slots=True)
class _Rates:
    """The cells of a block of rates. Cell i is the sum of the histograms members[starts[i]:starts[i + 1]] times their
    weights, at a schema of at most schema_max, times a factor. rows, steps: its place. low, last: the first and the
    last sample of its window; the counter was empty at zero_ms."""

    series: _Series
    ranges: Ranges
    code: int
    rows: Integers
    steps: Integers
    low: Integers
    last: Integers
    zero_ms: Integers
    starts: Integers
    members: Integers
    weights: NDArray[np.float64]
    schema_max: Integers

    def made(self, cells: Integers, admit: Callable[[int], None]) -> tuple[NativeHistograms, CombinedHistograms]:
        """The rates of these cells, and the sums of which they are made. admit: see `NativeHistograms.combined`. Any
        thread may call this."""
        places, starts = csr_places(self.starts, cells)
        found = self.series.histograms.combined(
            starts, self.members[places], self.weights[places], schema_max=self.schema_max[cells], admit=admit
        )
        window = self.low[cells], self.last[cells]
        counts = found.histograms.counts
        with np.errstate(all="ignore"):  # The setting of a thread is its own.
            factors = _extrapolation(
                self.series,
                self.rows[cells],
                self.steps[cells],
                window,
                self.zero_ms[cells],
                counts,
                self.ranges,
                self.code,
            )
            return found.histograms.times(factors).with_hint(GAUGE), found


def _check_windows(
    problems: RangeAnnotations,
    series: _Series,
    rows: Integers,
    places: tuple[Integers, Integers, Integers, Integers],
    *,
    is_counter: bool,
) -> Mask:
    """Whether the histograms of each window can be combined. places: the first sample, the one that is taken away,
    the last one, and the end."""
    low, base, last, high = places
    cells = series.cells
    custom, hints = series.histograms.has_bounds[cells], series.histograms.hints[cells]
    customs = np.concatenate(([0], np.cumsum(custom)))
    if is_counter:
        inside = customs[high] - customs[low + 1]
        same: Mask = np.where(custom[base], inside == high - low - 1, inside == 0)
        gauges = np.concatenate(([0], np.cumsum(hints == GAUGE)))
        wrong = gauges[high] - gauges[low] > 0
        text = "this native histogram metric is not a counter:"
    else:
        same = custom[base] == custom[last]
        wrong = (hints[low] != GAUGE) | (hints[last] != GAUGE)
        text = "this native histogram metric is not a gauge:"
    problems.warn_of_schemas(np.unique(rows[~same]))
    problems.warn(text, np.unique(rows[wrong & same]))
    return same


def _extrapolation(
    series: _Series,
    rows: Integers,
    steps: Integers,
    places: tuple[Integers, Integers],
    zero_ms: Integers,
    counts: NDArray[np.float64],
    ranges: Ranges,
    code: int,
) -> NDArray[np.float64]:
    """The factors that extend a change between samples to the whole range, as of floats in `range_kernels`.

    zero_ms: the counter was empty at this time, where it is before the first sample.
    """
    low, last = places
    at_ms = ranges.at_ms[steps]
    to_start = (series.ts_ms[low] - (at_ms - ranges.range_ms)) / 1000
    to_end = (at_ms - series.ts_ms[last]) / 1000
    sampled = (series.ts_ms[last] - series.ts_ms[low]) / 1000
    mean = sampled / np.maximum(last - low, 1)
    to_start = np.where(to_start >= mean * 1.1, mean / 2, to_start)
    if code != codes.DELTA:
        first = series.histograms.counts[series.cells[low]]
        to_zero = np.where((counts > 0) & (first >= 0), sampled * (first / counts), to_start)
        to_start = np.where(to_zero < to_start, to_zero, to_start)
    starts_inside = zero_ms < series.ts_ms[low]
    sampled = np.where(starts_inside, (series.ts_ms[last] - zero_ms) / 1000, sampled)
    to_start = np.where(starts_inside, 0.0, to_start)
    to_end = np.where(to_end >= mean * 1.1, mean / 2, to_end)
    factors: NDArray[np.float64] = (sampled + to_start + to_end) / sampled
    return factors / (ranges.range_ms / 1000) if code == codes.RATE else factors


def _extended_rates(
    problems: RangeAnnotations,
    block: Block,
    series: _Series,
    windows: SampleWindows,
    where: Mask,
    ranges: Ranges,
    code: int,
) -> Block:
    """rate, increase and delta from one end of the range to the other. As in Prometheus (promql/functions.go,
    `extendedHistogramRate`): smoothed ranges take values between the samples around their ends."""
    is_smoothed, is_counter = ranges.extension is Extension.SMOOTHED, code in _COUNTERS
    ts_ms, cells = series.ts_ms, series.cells
    end_ms = np.broadcast_to(ranges.at_ms, where.shape)
    start_ms = end_ms - ranges.range_ms
    at_start = places_of(series.samples.starts, ts_ms, ranges.at_ms - ranges.range_ms)
    at_end = places_of(series.samples.starts, ts_ms, ranges.at_ms - 1)
    last_of = np.minimum(at_end, windows.high - 1) if is_smoothed else windows.high - 1
    first_of = np.maximum(np.minimum(at_start, windows.high - 1) - 1, windows.low)
    rows, steps = np.nonzero(where)
    first, last = first_of[rows, steps], last_of[rows, steps]
    starts, ends, low = start_ms[rows, steps], end_ms[rows, steps], windows.low[rows, steps]
    used = (ts_ms[last] > starts) & ((not is_smoothed) | (ts_ms[first] <= ends))
    rows, steps, first, last, starts, ends, low = (part[used] for part in (rows, steps, first, last, starts, ends, low))
    good = _check_windows(problems, series, rows, (first, first, last, last + 1), is_counter=is_counter)
    rows, steps, first, last, starts, ends, low = (part[good] for part in (rows, steps, first, last, starts, ends, low))
    before = is_smoothed & (ts_ms[first] < starts)
    after = is_smoothed & (last > low) & (ts_ms[last] > ends)
    left = series.at(first, np.where(before, first + 1, first), starts, is_counter=is_counter)
    right = series.at(np.where(after, last - 1, last), last, ends, is_counter=is_counter)
    report_interpolated(problems, (left, right))
    pool = joined_natives([series.histograms, left.histograms, right.histograms])
    left_at = len(series.histograms) + np.arange(len(rows))
    right_at = left_at + len(rows)
    groups = np.arange(len(rows))
    members, weights, of = [right_at, left_at], [np.ones(len(rows)), -np.ones(len(rows))], [groups, groups]
    if is_counter:
        resets = series.resets()
        begins = before & resets[first + 1]
        inner, final = first + 1 + begins, last - 1  # Samples that are compared with the one before them.
        previous = np.where(begins, cells[np.minimum(first + 1, last)], left_at)
        has_inner = inner <= final
        fell = has_inner & pool.are_resets(cells[np.minimum(inner, last)], previous)
        newest = np.where(has_inner, cells[final], previous)
        ended = (inner <= final + 1) & pool.are_resets(right_at, newest)
        at_resets = np.flatnonzero(resets)
        low_reset, high_reset = np.searchsorted(at_resets, inner + 1), np.searchsorted(at_resets, final + 1)
        more = np.maximum(high_reset - low_reset, 0)
        number = np.arange(more.sum()) - np.repeat(np.cumsum(more) - more, more)
        between = cells[at_resets[np.repeat(low_reset, more) + number] - 1]
        for cells_of, group in (
            (previous[fell], groups[fell]),
            (between, np.repeat(groups, more)),
            (newest[ended], groups[ended]),
        ):
            members.append(cells_of)
            weights.append(np.ones(len(cells_of)))
            of.append(group)
    group_of = np.concatenate(of)
    order = np.argsort(group_of, kind="stable")
    bounds = np.searchsorted(group_of[order], np.arange(len(rows) + 1))
    admit = _beside(problems.context, pool.nbytes)
    found = pool.combined(bounds, np.concatenate(members)[order], np.concatenate(weights)[order], admit=admit)
    problems.report(found, is_aggregation=False)
    made = found.histograms
    if code == codes.RATE:
        made = made.over(np.full(len(rows), ranges.range_ms / 1000))
    return _with_cells(block, made.with_hint(GAUGE), rows, steps, found.failed < 0)


def report_interpolated(problems: RangeAnnotations, found: Iterable[CombinedHistograms]) -> None:
    """Add what histograms between samples came upon: their difference is taken before it is added."""
    for one in found:
        if (one.flags & RECONCILED_ADDITION).any():
            problems.context.annotations.inform(
                "mismatched custom buckets were reconciled during subtraction", span_of(problems.node)
            )


def _instant(
    problems: RangeAnnotations,
    block: Block,
    samples: Samples,
    native: HistogramCells,
    windows: SampleWindows,
    code: int,
) -> Block:
    """irate and idelta: the last two samples of a window, whatever their kind."""
    rows, steps = np.nonzero(windows.sizes > 1)
    last = windows.high[rows, steps] - 1
    now, before = native.of[last], native.of[last - 1]
    both, one = (now >= 0) & (before >= 0), (now >= 0) != (before >= 0)
    problems.warn("encountered a mix of histograms and floats for metric name", np.unique(rows[one]))
    present = np.zeros_like(block.present)
    are_floats = (now < 0) & (before < 0)
    present[rows[are_floats], steps[are_floats]] = True
    block = replace(block, present=block.present & present)
    rows, steps, last, now, before = rows[both], steps[both], last[both], now[both], before[both]
    histograms, is_rate = native.histograms, code == codes.IRATE
    gauges = (histograms.hints[now] == GAUGE).astype(np.int64) + (histograms.hints[before] == GAUGE)
    kind = "counter" if is_rate else "gauge"
    wrong = gauges > 0 if is_rate else gauges < 2
    problems.warn(f"this native histogram metric is not a {kind}:", np.unique(rows[wrong]))
    resets = histograms.are_resets(now, before) if is_rate else np.zeros(len(now), np.bool_)
    if is_rate and len(begins := start_resets(samples)):
        resets |= begins[last]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.where(resets, 1, 2))))
    members, weights = np.zeros(starts[-1], np.int64), np.ones(starts[-1])
    members[starts[:-1]] = now
    members[starts[1:][~resets] - 1], weights[starts[1:][~resets] - 1] = before[~resets], -1.0
    found = histograms.combined(starts, members, weights, admit=_beside(problems.context, 0))
    problems.warn_of_schemas(np.unique(rows[found.failed >= 0]))
    problems.report(found, is_aggregation=False)
    made = found.histograms
    if is_rate:
        made = made.over((samples.ts_ms[last] - samples.ts_ms[last - 1]) / 1000)
    return _with_cells(block, made.with_hint(GAUGE), rows, steps, found.failed < 0)


def _turns(samples: Samples, native: HistogramCells, windows: SampleWindows, ranges: Ranges, code: int) -> Block:
    """resets and changes: the number of samples that differ from the one before them. A sample of another kind does."""
    of, values = native.of, samples.values
    places = np.setdiff1d(np.arange(len(of)), samples.starts[:-1])
    now, before = of[places], of[places - 1]
    new, old = values[places], values[places - 1]
    turns = new < old if code == codes.RESETS else (new != old) & ~(np.isnan(new) & np.isnan(old))
    turns = np.where((now >= 0) == (before >= 0), turns, True)
    both = (now >= 0) & (before >= 0)
    if code == codes.RESETS:
        turns[both] = native.histograms.are_resets(now[both], before[both])
    else:
        turns[both] = ~native.histograms.are_equal(now[both], before[both])
    if code == codes.RESETS and len(begins := start_resets(samples)):
        turns |= begins[places]
    of_sample = np.zeros(len(of), np.int64)
    of_sample[places] = turns
    totals = np.concatenate(([0], np.cumsum(of_sample)))
    low, high = windows.low, windows.high
    present = high > low
    if ranges.extension is not Extension.NONE:
        # The last sample up to the start of the range is the first one that counts.
        inside = places_of(samples.starts, samples.ts_ms, ranges.at_ms - ranges.range_ms)
        low, present = np.maximum(low, inside - 1), present & (high > inside)
    counts = totals[high] - totals[np.minimum(low + 1, len(of))]
    return Block(samples.labels, np.where(present, counts, 0).astype(np.float64), present, samples.loses_name)
