"""Rules: known differences of a Prometheus server, by query. A difference under a rule is counted and fails nothing.

Versions before 3.0, as Debian has them, differ from 3.15 by decisions of Prometheus. Differences to all versions are
bugs there that this store does not repeat, or lie in the last bits of a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from support.promql.differential.answers import Answer, Query
from support.promql.differential.difference import Kind
from support.promql.differential.parts import names_in
from tsdb.promql.syntax.tree import COMPARISONS

THREE = (3, 0)
SAME_LABELS = "vector cannot contain metrics with the same labelset"
OF_RESULTS = (Kind.SERIES, Kind.TIMES, Kind.VALUES, Kind.ORDER)
# Go computes these by other algorithms than the C library: results differ in the last bits. Quantiles choose between
# 0 and -0 by the order of a sort.
INEXACT = frozenset(
    {
        *("exp", "ln", "log2", "log10", "^", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "stddev", "stdvar"),
        *("quantile", "quantile_over_time"),
    }
)
AMPLIFIERS = COMPARISONS | {
    *("%", "floor", "ceil", "round", "sgn", "sin", "cos", "tan", "acos", "asin", "acosh", "atanh"),
    *("changes", "resets", "rate", "increase", "irate", "count_values", "topk", "bottomk"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A query with the two answers, and the part in which they differ."""

    query: Query
    ours: Answer
    theirs: Answer
    kind: Kind


@dataclass(frozen=True, slots=True)
class Rule:
    """explains: whether a difference may be due to the rule."""

    name: str
    reason: str
    explains: Callable[[Case], bool]


def rules_for(version: tuple[int, int]) -> Sequence[Rule]:
    """The rules for a server of a version."""
    return (*BEFORE_THREE, *ALWAYS) if version < THREE else ALWAYS


def _has(*names: str) -> Callable[[Case], bool]:
    """Results differ, of a query that calls one of these."""
    return lambda case: case.kind in OF_RESULTS and not names_in(case.query.text).isdisjoint(names)


def _has_with(modifiers: Sequence[str], name: str) -> Callable[[Case], bool]:
    """The query calls a function, and has these somewhere."""
    return lambda case: name in names_in(case.query.text) and all(text in case.query.text for text in modifiers)


def _fails(ours: str, theirs: str) -> Callable[[Case], bool]:
    """Messages of failures contain these texts. An empty text stands for any message, and for an answer."""
    return lambda case: ours in _message(case.ours) and theirs in _message(case.theirs)


def _message(answer: Answer) -> str:
    return "" if answer.failure is None else str(answer.failure)


def _one_side_has_same_labels(case: Case) -> bool:
    return (SAME_LABELS in _message(case.ours)) is not (SAME_LABELS in _message(case.theirs))


def _is_subquery_at_a_time(case: Case) -> bool:
    is_range = case.theirs.kind == "matrix" and case.query.step_ms is None
    return is_range and case.kind is Kind.SERIES and "@" in case.query.text


def _shows_last_bits(case: Case) -> bool:
    names = names_in(case.query.text)
    if names.isdisjoint(INEXACT):
        return False
    if case.kind is Kind.ERROR:
        return _without_numbers(_message(case.ours)) == _without_numbers(_message(case.theirs))
    return case.kind is Kind.WARNINGS or (case.kind in OF_RESULTS and not names.isdisjoint(AMPLIFIERS))


def _without_numbers(text: str) -> str:
    return re.sub(r"[\d.]+", "", text)


# For a store that returns series in another order than that of their labels, which is the order in the server.
OTHER_ORDER = Rule("order of series", "it decides among equal values", _has("topk", "bottomk", "limitk"))
BEFORE_THREE = (
    Rule(
        "rate near zero",
        "2.51 limits the extrapolation of a counter to half an interval before its zero (#13725)",
        _has("rate", "increase"),
    ),
    Rule("atan2", "it kept the name of the metric", _has("atan2")),
    Rule("histogram_fraction", "3.4 made it work on classic histograms (#16095)", _has("histogram_fraction")),
    Rule(
        "deviation",
        "3.0 treats infinity alike everywhere (#14941)",
        _has("stddev", "stdvar", "stddev_over_time", "stdvar_over_time"),
    ),
    Rule(
        "sums",
        "compensated since 2.54 and 2.55 (#14074, #14413): huge values no longer swallow others",
        _has("sum", "avg", "avg_over_time"),
    ),
    Rule("label names", "3.0 takes any UTF-8 for a name", _fails("", "invalid destination label name")),
    Rule("same labels", "versions look for them at other places", _one_side_has_same_labels),
    Rule("count_values", "a range query with `by` lost labels after its first step", _has("count_values")),
    Rule("parameters", "NaN and infinities were refused as too large", _fails("", "overflows int64")),
    Rule("ties", "2.44 chooses otherwise among equal values (#12190)", _has("topk", "bottomk")),
    Rule(
        "many matches",
        "a comparison refused only those that it let through, and atan2 told them apart by name",
        _fails("multiple matches for labels: ", ""),
    ),
    Rule("predict_linear with @", "it took the time of `@` for that of the step", _has_with(["@"], "predict_linear")),
    Rule(
        "timestamp with @ and offset",
        "it looked at the time of `@` for samples that are older than the offset",
        _has_with(["@", "offset"], "timestamp"),
    ),
    Rule("empty subquery", "it had a point of a constant after a window without a step", _is_subquery_at_a_time),
)
ALWAYS = (
    Rule(
        "syntax errors",
        "this parser and RE2 have other words for some, and point at another character of the same part",
        _fails("bad_data: ", "parse error: "),
    ),
    Rule("last bits", "a jump, a remainder or a message makes them visible", _shows_last_bits),
)
