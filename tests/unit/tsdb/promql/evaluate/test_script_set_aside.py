"""Evaluations are set aside where they need native histograms or start timestamps, and only there."""

from __future__ import annotations

import pytest

from support.promql.evaluation import Evaluation
from support.promql.script import Clear, Load, commands
from support.promql.unstored import Unstored

LOADED = """
load_with_nhcb 1m
  classic_bucket{le="1", a="b"} 1
  classic_count 1
  classic_total 1

load 1m
  floats{a="b"} 1
  histograms{a="c"} 1 {{count:1}}
  target_info{a="c"} {{count:1}}
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
        ("histograms", "selects native histograms"),
        ('{a="b"}', "selects native histograms"),
        ('{a=~"b|c",__name__!~"classic|target_info|histograms"}', None),
        ("sum(floats + rate(histograms[5m] offset 1m))", "selects native histograms"),
        ("max_over_time(histograms[5m:1m])", "selects native histograms"),
        ("classic_bucket + classic_count + classic_total", None),
        ("classic", "selects native histograms"),
        ('classic{le="1"}', None),
        ("info(floats)", "selects native histograms"),
        ('info(floats, {a=~".*"})', "selects native histograms"),
        ('info(floats, {__name__="floats"})', None),
        ("with_start", "selects start timestamps"),
        ("start_timestamp(floats)", "start_timestamp()"),
    ],
)
def test_reasons(query: str, expected: str | None) -> None:
    assert reason(LOADED, f"eval instant at 0 {query}\n") == expected


def test_an_expected_histogram_is_a_reason() -> None:
    assert reason(LOADED, "eval instant at 0 floats\n  floats {{count:1}}\n") == "expects native histograms"


def test_clear_removes_reasons() -> None:
    assert reason(LOADED, "clear\neval instant at 0 histograms + with_start\n") is None
