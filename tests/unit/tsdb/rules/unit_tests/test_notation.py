"""Series of test scripts: labels and points."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest

from tsdb.model.stale import STALE
from tsdb.rules.unit_tests.notation import HistogramPoint, Point, parse_series

ONE = HistogramPoint("{{schema:0 sum:1 count:1}}")
MORE = "+{{sum:1 count:1}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", [5]),
        ("1 2 -3", [1, 2, -3]),
        ("1+2x3", [1, 3, 5, 7]),
        ("1-2x3", [1, -1, -3, -5]),
        ("-1e1+.5x1", [-10, -9.5]),
        ("5x4", [5, 5, 5, 5, 5]),
        ("0x3", [0, 0, 0, 0]),
        ("_ 1 _x3 2", [None, 1, None, None, None, 2]),
        ("+Inf -Inf inf", [math.inf, -math.inf, math.inf]),
        ("1\t 2", [1, 2]),
        ("{{schema:0 sum:1 count:1}} 2", [ONE, 2]),
        ("{{schema:0 sum:1 count:1}}x1", [ONE, ONE]),
        ("{{schema:0 sum:1 count:1}}+{{sum:1 count:1}}x2", [replace(ONE, change=MORE, times=at) for at in range(3)]),
    ],
)
def test_points(text: str, expected: list[Point]) -> None:
    assert list(parse_series(f"x {text}").points) == expected


def test_sums_are_those_of_prometheus() -> None:
    assert parse_series("x 0+0.1x3").points[3] == 0.1 + 0.1 + 0.1


def test_nan_and_stale_markers_differ() -> None:
    nan, stale = parse_series("x NaN stale").points
    assert isinstance(nan, float)
    assert math.isnan(nan)
    assert isinstance(stale, float)
    assert struct.pack(">d", stale) == struct.pack(">d", STALE) == bytes.fromhex("7ff0000000000002")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x 1", {"__name__": "x"}),
        ("a:b{} 1", {"__name__": "a:b"}),
        ('{a="b"} 1', {"a": "b"}),
        ("{} 1", {}),
        ("x{a=\"1\", b='2',c=`3`,} 1", {"__name__": "x", "a": "1", "b": "2", "c": "3"}),
        ('x{a="} \\"{\\u00e9"} 1', {"__name__": "x", "a": '} "{é'}),
        ('{"my.metric", "a b"="c"} 1', {"__name__": "my.metric", "a b": "c"}),
        ('x{a=""} 1', {"__name__": "x"}),
        ('{__name__="x"}', {"__name__": "x"}),
    ],
)
def test_labels(text: str, expected: dict[str, str]) -> None:
    labels = parse_series(text).labels
    assert dict(labels) == expected
    assert list(labels) == sorted(labels)


@pytest.mark.parametrize(
    "text", ["", "1", "x 1+2", "x y", "x 1,2", "x{a=1} 1", "x{a} 1", 'x{a="1" 1', "x _+1x3", "x{}1"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_series(text)
