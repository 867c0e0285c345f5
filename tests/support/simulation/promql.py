"""PromQL in a simulation: instant and range queries through the querier, compared with a plain evaluation over the
oracle's samples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from support.simulation.details import count_of, float_of, is_mixed, value_bits
from support.simulation.oracle import Answered, Source, Violation
from support.simulation.reads import refused
from support.simulation.times import TIMES
from support.simulation.world import World
from tsdb.answer.spec import ReadOptions
from tsdb.client.call import ClientCall
from tsdb.client.query import QueryResult, query, query_range
from tsdb.model.errors import TsdbError
from tsdb.model.labels import canonical_labels, parse_labels
from tsdb.query.service import QuerierService
from tsdb.wire.state import encode_state

STALE_BITS = 0x7FF0000000000002
STEPS_MAX = 24
MIXED_SHARE = 0.25  # Share of queries over histograms and floats.

# Series by the kinds of their samples (see is_mixed): an expression is for one of them.
FLOATS: Mapping[str, Callable[[Source], bool]] = {
    '{job="sim",instance=~"0|2|4|6|8|10"}': lambda source: not source.number // 2 % 2,
    "m0": lambda source: not source.number % 2,
    'm1{instance="0"}': lambda source: source.number == 1,
}
MIXED: Mapping[str, Callable[[Source], bool]] = {
    'm1{instance=~"1|3|5|7|9|11"}': lambda source: is_mixed(source.number),
    'm1{instance="1"}': lambda source: source.number == 3,
}


class Native(float):
    """The sum of a histogram, which has a count too."""

    count: float


Point = tuple[int, float]
Rule = Callable[[Sequence[Point], int, int], float | None]
"""The value of a series at a time from its samples of (at - range, at], ascending: samples, at_ms, range_ms."""


def _newest(points: Sequence[Point], at_ms: int, range_ms: int) -> float | None:
    return points[-1][1] if points else None


def _selected(points: Sequence[Point], at_ms: int, range_ms: int) -> float | None:
    """An instant selector: a stale marker ends the series."""
    newest = _newest(points, at_ms, range_ms)
    return None if newest is None or _is_stale(newest) else newest


def _of_histogram(field: Callable[[Native], float], *, stale: bool) -> Rule:
    """The field of the newest sample, where that is a histogram."""

    def rule(points: Sequence[Point], at_ms: int, range_ms: int) -> float | None:
        newest = (_selected if stale else _newest)(points, at_ms, range_ms)
        return field(newest) if isinstance(newest, Native) else None

    return rule


def _of_floats(rule: Rule) -> Rule:
    """The rule applied to floats alone."""
    return lambda points, at_ms, range_ms: rule(
        [point for point in points if not isinstance(point[1], Native)], at_ms, range_ms
    )


def _over_time(reduce: Callable[[list[float]], float]) -> Rule:
    def rule(points: Sequence[Point], at_ms: int, range_ms: int) -> float | None:
        return reduce([value for _, value in points]) if points else None

    return rule


def _extreme(is_new: Callable[[float, float], bool]) -> Rule:
    def rule(points: Sequence[Point], at_ms: int, range_ms: int) -> float | None:
        found: float | None = None
        for _, value in points:
            if found is None or math.isnan(found) or is_new(value, found):
                found = value
        return found

    return rule


def _rate(points: Sequence[Point], at_ms: int, range_ms: int) -> float | None:
    """The increase, with counter resets, extrapolated to the range by at most half an interval, a second."""
    if len(points) < 2:
        return None
    (first_ms, first), (last_ms, last) = points[0], points[-1]
    increase = last - first
    for (_, before), (_, after) in pairwise(points):
        if after < before:
            increase += before
    sampled_s = (last_ms - first_ms) / 1000
    interval_s = sampled_s / (len(points) - 1)
    to_start_s, to_end_s = (first_ms - (at_ms - range_ms)) / 1000, (at_ms - last_ms) / 1000
    if to_start_s >= 1.1 * interval_s:
        to_start_s = interval_s / 2
    if increase > 0 and first >= 0:
        to_start_s = min(to_start_s, sampled_s * (first / increase))
    if to_end_s >= 1.1 * interval_s:
        to_end_s = interval_s / 2
    return increase * (sampled_s + to_start_s + to_end_s) / sampled_s / (range_ms / 1000)


@dataclass(frozen=True)
class Expression:
    """text: a format of selector, range and offset. stale: whether stale markers are samples of the rule.

    sum_by: None for the values of each series; else they are added by these labels.
    """

    text: str
    rule: Rule
    ranged: bool = True
    stale: bool = False
    sum_by: tuple[str, ...] | None = None
    keeps_name: bool = False


EXPRESSIONS = (
    Expression("{0}{2}", _selected, ranged=False, stale=True, keeps_name=True),
    Expression("sum by (instance) ({0}{2})", _selected, ranged=False, stale=True, sum_by=("instance",)),
    Expression("sum({0}{2})", _selected, ranged=False, stale=True, sum_by=()),
    Expression("last_over_time({0}[{1}]{2})", _newest, keeps_name=True),
    Expression("count_over_time({0}[{1}]{2})", _over_time(lambda values: float(len(values)))),
    Expression("sum_over_time({0}[{1}]{2})", _over_time(lambda values: sum(values))),
    Expression("max_over_time({0}[{1}]{2})", _extreme(lambda new, old: new > old)),
    Expression("min_over_time({0}[{1}]{2})", _extreme(lambda new, old: new < old)),
    Expression("rate({0}[{1}]{2})", _rate),
    Expression("sum by (instance) (rate({0}[{1}]{2}))", _rate, sum_by=("instance",)),
)
MIXED_EXPRESSIONS = (
    Expression("histogram_count({0}{2})", _of_histogram(lambda one: one.count, stale=True), ranged=False, stale=True),
    Expression("histogram_sum({0}{2})", _of_histogram(float, stale=True), ranged=False, stale=True),
    Expression("histogram_count(last_over_time({0}[{1}]{2}))", _of_histogram(lambda one: one.count, stale=False)),
    Expression("count_over_time({0}[{1}]{2})", _over_time(lambda values: float(len(values)))),
    Expression("max_over_time({0}[{1}]{2})", _of_floats(_extreme(lambda new, old: new > old))),
)


@dataclass(frozen=True)
class Asked:
    """One query. times_ms: its steps; range_ms: the range of the range selector, or the lookback of an instant
    selector.
    """

    expression: Expression
    selector: str
    times_ms: Sequence[int]
    range_ms: int
    offset_ms: int
    allow_holes: bool = False

    @property
    def text(self) -> str:
        offset = f" offset {self.offset_ms}ms" if self.offset_ms else ""
        return self.expression.text.format(self.selector, f"{self.range_ms}ms", offset)

    @property
    def span_ms(self) -> tuple[int, int]:
        """Times of the samples that count: [start, end)."""
        return self.times_ms[0] - self.offset_ms - self.range_ms + 1, self.times_ms[-1] - self.offset_ms + 1

    def call(self) -> ClientCall[QueryResult]:
        """As the client makes it."""
        lookback_ms = 0 if self.expression.ranged else self.range_ms
        options = ReadOptions(allow_holes=True) if self.allow_holes else None
        first, last = self.times_ms[0], self.times_ms[-1]
        if len(self.times_ms) == 1:
            return query(self.text, first, lookback_ms=lookback_ms, options=options)
        step_ms = self.times_ms[1] - first
        return query_range(self.text, first, last, step_ms, lookback_ms=lookback_ms, options=options)


def promql(world: World, rng: random.Random) -> None:
    """One PromQL query, instant or over a range."""
    for store in world.stores:
        store.poll()
    if rng.random() < 0.3:
        _samples_of_range(world, rng)
        return
    asked = _asked(world, rng)
    with world.moving(rng):
        check_query(world, rng.choice(world.queriers()), asked)


def _asked(world: World, rng: random.Random) -> Asked:
    range_ms, offset_ms = rng.choice([1, 500, 2_000, 7_000, TIMES.window_ms]), rng.choice([0, 0, 500, TIMES.window_ms])
    end_ms = _sample_time(world, rng) + offset_ms + rng.choice([-1, 0, 1, range_ms - 1, range_ms, range_ms // 2])
    step_ms, steps = rng.choice([130, 500, 1_000, 7_000]), rng.choice([1, 1, rng.randint(2, STEPS_MAX)])
    times_ms = range(end_ms - (steps - 1) * step_ms, end_ms + 1, step_ms)
    expression, selectors = rng.choice(EXPRESSIONS), list(FLOATS)
    if expression.ranged and not expression.keeps_name:
        selectors.pop(0)  # Two metrics of one source would have the same labels.
    asked = Asked(expression, rng.choice(selectors), times_ms, range_ms, offset_ms, world.allows_holes(rng))
    if world.has_details and world.detail_random.random() < MIXED_SHARE:
        mixed = world.detail_random.choice(MIXED_EXPRESSIONS), world.detail_random.choice(list(MIXED))
        return replace(asked, expression=mixed[0], selector=mixed[1])
    return asked


def _sample_time(world: World, rng: random.Random) -> int:
    """The time of a sample, as often as not a late one."""
    source = rng.choice(world.sources[: world.met])
    known = world.oracle.entries[source.partition][source.series_id]
    if not known:
        return world.clock.now_ms()
    return rng.choice(list(known)[-5:]) if rng.random() < 0.5 else rng.choice(list(known))


def check_query(world: World, service: QuerierService, asked: Asked) -> None:
    """Raises Violation unless the answer is the expression over the oracle's samples, or a refusal."""
    result = _result(world, service, asked.call(), asked.allow_holes)
    if result is None:
        return
    found = _series(world, asked.span_ms, {**FLOATS, **MIXED}[asked.selector], allow_holes=asked.allow_holes)
    want = _evaluated(asked, found)
    doubtful = {_labels_of(asked.expression, source) for source, points in found if points is None}
    got = _values(result)
    for labels in (want.keys() | got.keys()) - doubtful:
        mine, theirs = want.get(labels, {}), got.get(labels, {})
        if mine.keys() != theirs.keys() or not all(_is_close(mine[at], theirs[at]) for at in mine):
            raise Violation(f"{asked.text} at {asked.times_ms}, {labels!r}: {theirs}, not {mine}")
    world.counts["queries"] += 1
    world.counts["queries with values"] += bool(want.keys() - doubtful)
    world.counts["queries of histograms"] += asked.selector in MIXED and bool(want.keys() - doubtful)


def _result(
    world: World, service: QuerierService, call: ClientCall[QueryResult], allow_holes: bool
) -> QueryResult | None:
    world.stated.clear()
    reader = call.reader()
    try:
        for message in service.Query(call.request, world.caller()):  # type: ignore[arg-type]  # Made by the client.
            reader.add(type(message).FromString(message.SerializeToString()))
    except TsdbError as error:
        refused(world, call.request, error, allow_holes=allow_holes)
        return None
    if world.stated.keys() != set(range(world.partitions)):
        raise Violation(f"{call.request} is answered out of partitions {sorted(world.stated)} alone")
    return reader.finish()


def _samples_of_range(world: World, rng: random.Random) -> None:
    """A range selector at one time. Its answer has samples, and each is checked even when others are in doubt."""
    end_ms = world.clock.now_ms() - rng.choice([0, 0, rng.randint(0, 4 * TIMES.window_ms)])
    selector, range_ms = rng.choice(list(FLOATS)), rng.choice([500, TIMES.window_ms, 4 * TIMES.window_ms])
    allow_holes = world.allows_holes(rng)
    call = query(f"{selector}[{range_ms}ms]", end_ms, options=ReadOptions(allow_holes=True) if allow_holes else None)
    with world.moving(rng):
        result = _result(world, rng.choice(world.queriers()), call, allow_holes)
    if result is None:
        return
    got = _values(result)
    for source, by_time in _allowed(
        world, (end_ms - range_ms + 1, end_ms + 1), FLOATS[selector], allow_holes=allow_holes
    ):
        shown = got.pop(source.canonical, {})
        for ts_ms in by_time.keys() | shown.keys():
            allowed, absent = by_time.get(ts_ms, (set(), True))
            bits = set(map(value_bits, allowed))
            seen = _bits(shown[ts_ms]) if ts_ms in shown else None
            # Range selectors leave stale markers out.
            if (seen is None and not absent and STALE_BITS not in bits) or (seen is not None and seen not in bits):
                raise Violation(f"{call.request}: {source.canonical!r} at {ts_ms} is {shown.get(ts_ms)}, not {bits}")
    if any(got.values()):
        raise Violation(f"{call.request}: nobody wrote {sorted(got)}")
    world.counts["range selectors"] += 1


Allowed = dict[int, tuple[set[int], bool]]


def _allowed(
    world: World, span_ms: tuple[int, int], wanted: Callable[[Source], bool], *, allow_holes: bool
) -> list[tuple[Source, Allowed]]:
    """Samples that may be shown of each series, by time. With allow_holes any sample may be missing, because warnings
    are only texts.
    """
    found = []
    for source in filter(wanted, world.sources):
        answered = Answered.of(encode_state(world.stated[source.partition]), span_ms[0], moved=world.moved)
        by_time: Allowed = {}
        for ts_ms in sorted(world.oracle.entries[source.partition][source.series_id]):
            if span_ms[0] <= ts_ms < span_ms[1]:
                by_time[ts_ms] = world.oracle.allowed(
                    source.partition,
                    source.series_id,
                    ts_ms,
                    answered.applied_offset,
                    newer=answered.is_newer(ts_ms),
                    excused=allow_holes,
                )
        found.append((source, by_time))
    return found


def _series(
    world: World, span_ms: tuple[int, int], wanted: Callable[[Source], bool], *, allow_holes: bool
) -> list[tuple[Source, list[Point] | None]]:
    """The samples of each series; None where more than one answer is right."""
    found: list[tuple[Source, list[Point] | None]] = []
    for source, by_time in _allowed(world, span_ms, wanted, allow_holes=allow_holes):
        if any(len(bits) + absent != 1 for bits, absent in by_time.values()):
            found.append((source, None))
        else:
            found.append((source, [(ts_ms, _value(min(bits))) for ts_ms, (bits, _) in by_time.items() if bits]))
    return found


def _value(identity: int) -> float:
    count = count_of(identity)
    if count is None:
        return float_of(identity)
    native = Native(float_of(identity))
    native.count = count
    return native


def _evaluated(asked: Asked, found: Sequence[tuple[Source, list[Point] | None]]) -> dict[bytes, dict[int, float]]:
    expression = asked.expression
    values: dict[bytes, dict[int, float]] = {}
    for source, points in found:
        labels = _labels_of(expression, source)
        for at_ms in asked.times_ms if points else ():
            end_ms = at_ms - asked.offset_ms
            mine = [
                (ts_ms, value)
                for ts_ms, value in points or ()
                if end_ms - asked.range_ms < ts_ms <= end_ms and (expression.stale or not _is_stale(value))
            ]
            value = expression.rule(mine, end_ms, asked.range_ms)
            if value is None:
                continue
            by_time = values.setdefault(labels, {})
            by_time[at_ms] = by_time[at_ms] + value if at_ms in by_time else value
    return values


def _labels_of(expression: Expression, source: Source) -> bytes:
    labels = dict(parse_labels(source.canonical))
    if expression.sum_by is not None:
        return canonical_labels({name: labels[name] for name in expression.sum_by})
    if not expression.keeps_name:
        del labels["__name__"]
    return canonical_labels(labels)


def _values(result: QueryResult) -> dict[bytes, dict[int, float]]:
    found: dict[bytes, dict[int, float]] = {}
    for number, labels in enumerate(result.canonical):
        rows = slice(int(result.starts[number]), int(result.starts[number + 1]))
        found[labels] = dict(zip(result.ts_ms[rows].tolist(), result.values[rows].tolist(), strict=True))
    return found


def _bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def _is_stale(value: float) -> bool:
    return _bits(value) == STALE_BITS


def _is_close(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9)
