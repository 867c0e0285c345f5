"""Evaluations are set aside where they need start timestamps, and only there."""

from __future__ import annotations

import pytest

from support.promql.evaluation import Evaluation
from support.promql.script import Clear, Load, commands
from support.promql.unstored import Unstored

LOADED = """
load 1m
  floats{a="b"} 1
  histograms{a="c"} 1 {{count:1}}
  with_start@st -1m
  with_start 1

"""


def reason(text: str, query: str) -> str | None:
    unstored, found = Unstored(), None
    for command in commands(text + query):
        match command:
            case Load():
                unstored.load(command)
            case Clear():
                unstored.clear()
            case Evaluation():
                found = unstored.reason(command)
    return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("floats", None),
        ("histograms", None),
        ("with_start", "selects start timestamps"),
        ("{a='c'}", None),
        ("sum(floats + rate(with_start[5m] offset 1m))", "selects start timestamps"),
        ("max_over_time(with_start[5m:1m])", "selects start timestamps"),
        ("info(floats)", None),
        ("info(floats, {__name__='with_start'})", "selects start timestamps"),
        ("start_timestamp(floats)", "start_timestamp()"),
    ],
)
def test_reasons(query: str, expected: str | None) -> None:
    assert reason(LOADED, f"eval instant at 0 {query}\n") == expected


def test_clear_removes_reasons() -> None:
    assert reason(LOADED, "clear\neval instant at 0 floats + with_start\n") is None
