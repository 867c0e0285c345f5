"""Reach: which steps of which rules a sample can change, found from the rules' expressions alone.

An expression at T reads samples of some series in a stretch of time relative to T, or at a fixed time (`@`). A stretch
here may be wider than what is read, never narrower: ranges of subqueries are taken whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tsdb.model.selector import Matcher, MatchType
from tsdb.promql.evaluate.query import LOOKBACK_MS
from tsdb.promql.syntax.durations import duration_ms
from tsdb.promql.syntax.tree import (
    Call,
    Duration,
    Edge,
    Expression,
    Extension,
    MatrixSelector,
    Subquery,
    VectorSelector,
    children,
)
from tsdb.rules.alerts import ALERTS, ALERTS_FOR_STATE, Labels
from tsdb.rules.files import ALERT_NAME, AlertingRule, Rule, RuleQuery
from tsdb.selector.selectors import METRIC_NAME, matches

_INFO = (Matcher(MatchType.REGEX, METRIC_NAME, ".+_info"),)  # The series that info() may read.


@dataclass(frozen=True, slots=True)
class RuleReach:
    """The samples of matching series with T - oldest_ms < t <= T - newest_ms; newest_ms is negative where an expression
    reads the time after T. base_ms: the expression reads the stretch before this time, whatever T is."""

    matchers: tuple[Matcher, ...]
    oldest_ms: int
    newest_ms: int = 0
    base_ms: int | None = None

    def times(self, ts_ms: int) -> tuple[int, int] | None:
        """First and last T that a sample at ts_ms can change; None: no T."""
        if self.base_ms is None:
            return ts_ms + self.newest_ms, ts_ms + self.oldest_ms - 1
        is_read = self.base_ms - self.oldest_ms < ts_ms <= self.base_ms - self.newest_ms
        return (-(1 << 62), 1 << 62) if is_read else None


def reaches_of(query: RuleQuery, lookback_ms: int = LOOKBACK_MS) -> tuple[RuleReach, ...]:
    """The selectors of an expression, with their times. Raises QueryError for a duration without a value."""
    return tuple(dict.fromkeys(_selected(query, lookback_ms)))


@dataclass(frozen=True, slots=True)
class _Times:
    """Times at which a part of an expression is evaluated: [T - oldest_ms, T - newest_ms], or before base_ms."""

    oldest_ms: int = 0
    newest_ms: int = 0
    base_ms: int | None = None

    def before(self, node: VectorSelector | Subquery, offset_ms: int) -> _Times:
        """The times after `@` and the offset of a node."""
        start = self
        if isinstance(node.at, Edge):
            start = _Times()  # Start and end of an instant query are T.
        elif node.at is not None:
            start = _Times(base_ms=node.at)
        return _Times(start.oldest_ms + offset_ms, start.newest_ms + offset_ms, start.base_ms)


def _selected(query: RuleQuery, lookback_ms: int) -> Iterator[RuleReach]:
    def length_ms(node: Duration | None) -> int:
        return 0 if node is None else duration_ms(node, query.text, 0, 0)

    def reach(matchers: tuple[Matcher, ...], node: VectorSelector, times: _Times, range_ms: int) -> RuleReach:
        at = times.before(node, length_ms(node.offset))
        more_ms = lookback_ms if node.extension is not Extension.NONE else 0
        after_ms = lookback_ms if node.extension is Extension.SMOOTHED else 0
        return RuleReach(matchers, at.oldest_ms + range_ms + more_ms, at.newest_ms - after_ms, at.base_ms)

    # A part of the expression, its times, and whether info() reads at the times of its selectors.
    pending: list[tuple[Expression, _Times, bool]] = [(query.node, _Times(), False)]
    while pending:
        node, times, has_info = pending.pop()
        if isinstance(node, VectorSelector):
            yield reach(node.matchers, node, times, lookback_ms)
            if has_info:
                yield reach(_INFO, node, times, lookback_ms)
        elif isinstance(node, MatrixSelector):
            yield reach(node.selector.matchers, node.selector, times, length_ms(node.range))
            if has_info:
                yield reach(_INFO, node.selector, times, lookback_ms)
        elif isinstance(node, Subquery):
            at = times.before(node, length_ms(node.offset))
            inner = _Times(at.oldest_ms + length_ms(node.range), at.newest_ms, at.base_ms)
            pending.append((node.expression, inner, has_info))
        else:
            if isinstance(node, Call) and node.name == "info":
                has_info = True
                yield RuleReach(_INFO, times.oldest_ms + lookback_ms, times.newest_ms, times.base_ms)
            pending.extend((child, times, has_info) for child in children(node))


def outputs_of(rule: Rule) -> tuple[RuleReach, ...]:
    """The series that a rule writes, as selectors of one step: labels that a template makes are left out."""
    if not isinstance(rule, AlertingRule):
        return (RuleReach((_equal(METRIC_NAME, rule.name), *(_equal(*pair) for pair in rule.labels.items())), 1),)
    own = [_equal(name, template.text) for name, template in rule.labels.items() if template.is_plain]
    own = [one for one in own if one.name != ALERT_NAME]
    named = _equal(ALERT_NAME, rule.name)
    return tuple(RuleReach((_equal(METRIC_NAME, metric), named, *own), 1) for metric in (ALERTS, ALERTS_FOR_STATE))


def may_share(one: Rule, other: Rule) -> bool:
    """Whether two rules may write the same series: no label that both fix differs."""
    first, second = (dict(pair[1:] for pair in outputs_of(rule)[0].matchers) for rule in (one, other))
    return all(second.get(name, value) == value for name, value in first.items())


def _equal(name: str, value: str) -> Matcher:
    return Matcher(MatchType.EQUAL, name, value)


@dataclass(frozen=True, slots=True)
class Target:
    """A reach of a rule. group: the key of its group. rule: its number there. is_output: the rule writes the series."""

    group: str
    rule: int
    reach: RuleReach
    is_output: bool = False


class Targets:
    """Finds the targets of a series: by the name of its metric, then by matchers."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._by_name: dict[str, list[Target]] = {}
        self._unnamed: list[Target] = []
        for target in targets:
            names = [one.value for one in target.reach.matchers if _is_name(one)]
            (self._by_name.setdefault(names[0], []) if names else self._unnamed).append(target)
        self.all = tuple(targets)
        reaches = [target.reach for target in targets]
        self.ahead_ms = max([0, *(-one.newest_ms for one in reaches)])
        """How far after T an expression reads."""
        self.fixed_ms = max([0, *(one.base_ms - one.newest_ms for one in reaches if one.base_ms is not None)])
        """The last time that an expression with `@` reads."""

    def of(self, labels: Labels) -> tuple[Target, ...]:
        """The targets that a series with these labels matches."""
        values = dict(labels)
        candidates = (*self._by_name.get(values.get(METRIC_NAME, ""), ()), *self._unnamed)
        return tuple(target for target in candidates if _matches(target.reach.matchers, values))


def _is_name(matcher: Matcher) -> bool:
    return matcher.name == METRIC_NAME and matcher.type is MatchType.EQUAL


def _matches(matchers: Sequence[Matcher], values: Mapping[str, str]) -> bool:
    return all(matches(matcher, values.get(matcher.name, "")) for matcher in matchers)
