"""Printed text parses back to the same tree."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from support.promql.scripts import queries
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown, shown_lines
from tsdb.promql.syntax.tree import DurationParen, DurationUnary, VectorSelector

# `offset -50` is printed as `offset -50s`.
LEFT_OUT = {"span", "operator_span", "is_duration"}

QUERIES = [
    "1",
    "-0x10",
    "1e100 + 1e-7",
    '"a\\"b\\n"',
    "up",
    '{"a b", "c d"!="e"}',
    "x{a=~'b|c'}[1h30m] @ start() offset -1d12h",
    "sum without (a) (x) / ignoring (b) group_right (c) y",
    "count_values by (\"a b\") ('v', x)",
    "max_over_time(x[1h:] offset 1m) == bool 1",
    "min_over_time(x[max_of(step(), 1m) * 2 - (1m + 5s)])",
    "increase(x[5m] smoothed) + fill (0) y",
    "-(a ^ -b) % (c atan2 d)",
    "h </ 1 >/ 2",
]


def plain(node: Any) -> Any:
    """A tree without positions and with sorted matchers. Floats are compared by their text, so that NaN equals NaN.

    Several pairs of parentheses around a duration are printed as one, and a plus before one is left out.
    """
    while isinstance(node, DurationParen) and isinstance(node.inner, DurationParen):
        node = node.inner
    if isinstance(node, DurationUnary) and node.operator == "+":
        return plain(node.operand)
    if isinstance(node, VectorSelector):
        node = dataclasses.replace(node, matchers=tuple(sorted(node.matchers, key=str)))
    if dataclasses.is_dataclass(node):
        fields = [field.name for field in dataclasses.fields(node) if field.name not in LEFT_OUT]
        return type(node).__name__, *(plain(getattr(node, name)) for name in fields)
    if isinstance(node, tuple):
        return tuple(map(plain, node))
    return repr(node) if isinstance(node, float) else node


@pytest.mark.parametrize("text", QUERIES)
def test_print_parses_back(text: str) -> None:
    node = parse(text, ALL_FEATURES)
    printed = shown(node)
    assert plain(parse(printed, ALL_FEATURES)) == plain(node), printed
    assert shown(parse(printed, ALL_FEATURES)) == printed


def test_prometheus_scripts_parse_and_print() -> None:
    """Where the scripts are found. They are not copied."""
    for text in queries():
        node = parse(text, ALL_FEATURES)
        assert plain(parse(shown(node), ALL_FEATURES)) == plain(node), text


# The texts are those of Prometheus 3.15.
PRINTED = [
    ('up{b="1", a!="2", a=~"3"}', 'up{a!="2",a=~"3",b="1"}'),
    ('{"up", job="a"}', '{__name__="up",job="a"}'),
    ('{__name__=~"a|b", x="y"}', '{__name__=~"a|b",x="y"}'),
    (r'"\a\b\f\n\r\t\v\x1f\xff"', r'"\a\b\f\n\r\t\v\x1f\xff"'),
    ("1e21 + 1e-7", "1000000000000000000000 + 0.0000001"),
    ("a + fill (1e6) b", "a + fill (1e+06) b"),
    ("a offset 0", "a"),
    ("a offset 60", "a offset 1m"),
    ("a[300]", "a[5m]"),
    ("a[300:60]", "a[5m:1m]"),
    ("a[((5m))]", "a[(5m)]"),
    ("a[+step() * 2]", "a[step() * 2]"),
    ("a + on() b", "a + on () b"),
    ("a + ignoring() b", "a + b"),
    ("a + ignoring() group_left b", "a + ignoring () group_left () b"),
    ("1 + on() a", "1 + a"),
    ("sum by () (a)", "sum(a)"),
    ("sum without () (a)", "sum without () (a)"),
    ("sum(a) by (c, b)", "sum by (c, b) (a)"),
    ("a smoothed @ 1 offset 5m", "a @ 1.000 smoothed offset 5m"),
]
LONG = "a" * 80
SPLIT = [
    (f"{LONG} + {LONG}", f"  {LONG}\n+\n  {LONG}"),
    (f"{LONG} * on (x) group_left (y) {LONG}", f"  {LONG}\n* on (x) group_left (y)\n  {LONG}"),
    (f"({LONG} + {LONG})", f"(\n    {LONG}\n  +\n    {LONG}\n)"),
    (f"-({LONG} or {LONG})", f"-(\n    {LONG}\n  or\n    {LONG}\n)"),
    (f"sum by (x) (rate({LONG}[5m] offset 1h))", f"sum by (x) (\n  rate({LONG}[5m] offset 1h)\n)"),
    (f"topk(5, {LONG} > bool 12345678)", f"topk(\n  5,\n  {LONG} > bool 12345678\n)"),
    (f"clamp({LONG}, 1000, 100000000)", f"clamp(\n  {LONG},\n  1000,\n  100000000\n)"),
    (f"abs({LONG})[1h:] offset 12345678m", f"abs({LONG})[1h:] offset 8573d9h18m"),
    (f"max_over_time({LONG}[1h:1m] offset 5m)", f"max_over_time(\n{LONG}[1h:1m] offset 5m\n)"),
    (f"{LONG}{LONG}[5m]", f"{LONG}{LONG}[5m]"),
]


@pytest.mark.parametrize(("text", "printed"), [*PRINTED, *SPLIT])
def test_a_query_is_printed_as_prometheus_prints_it(text: str, printed: str) -> None:
    assert "".join(shown_lines(parse(text, ALL_FEATURES))) == printed


def test_a_number_of_milliseconds_keeps_them() -> None:
    # Prometheus prints `1s`.
    assert shown(parse("1s1ms")) == "1s1ms"
