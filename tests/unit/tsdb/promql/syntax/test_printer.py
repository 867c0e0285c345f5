"""Printed text parses back to the same tree."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from support.promql.scripts import queries
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown

# has_grouping: `sum by () (x)` is printed as `sum(x)`.
LEFT_OUT = {"span", "operator_span", "has_grouping"}

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
    """A tree without places; floats by their text, so that NaN is equal to NaN."""
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
