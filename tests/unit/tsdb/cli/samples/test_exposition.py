"""A line of the exposition becomes the sample it says, or is refused by its place."""

from __future__ import annotations

import math

import pytest

from tsdb.cli.samples.exposition import ExposedSample, ExpositionParser
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels


def parse(line: str, target: dict[str, str] | None = None) -> ExposedSample | None:
    return ExpositionParser(target).parse(line, "x, line 1")


@pytest.mark.parametrize(
    ("line", "labels", "ts_ms", "value"),
    [
        ("up 1", {"__name__": "up"}, None, 1.0),
        ("up 1 1700000000123", {"__name__": "up"}, 1700000000123, 1.0),
        ("  up\t-1.5e3  -5 \n", {"__name__": "up"}, -5, -1500.0),
        ('up{a="1",b="x y"} +Inf', {"__name__": "up", "a": "1", "b": "x y"}, None, math.inf),
        ('up{a="1",} -Inf', {"__name__": "up", "a": "1"}, None, -math.inf),
        ("up{} 0", {"__name__": "up"}, None, 0.0),
        ('up {a="1"} 0', {"__name__": "up", "a": "1"}, None, 0.0),
        ('up{a="}"} 2', {"__name__": "up", "a": "}"}, None, 2.0),
        ('up{a="{b=\\"c\\"} 1"} 2 3', {"__name__": "up", "a": '{b="c"} 1'}, 3, 2.0),
        ('up{a="back\\\\slash\\nnew"} 2', {"__name__": "up", "a": "back\\slash\nnew"}, None, 2.0),
        ('{"a.name",b="c"} 2', {"__name__": "a.name", "b": "c"}, None, 2.0),
        ('up{a=""} 2', {"__name__": "up"}, None, 2.0),
        ("counter 3", {"__name__": "counter"}, None, 3.0),
    ],
)
def test_a_sample_is_read_as_it_is_written(line: str, labels: dict[str, str], ts_ms: int | None, value: float) -> None:
    assert parse(line) == ExposedSample(canonical_labels(labels), ts_ms, value)


def test_a_nan_is_a_value() -> None:
    sample = parse("up NaN")
    assert sample is not None
    assert math.isnan(sample.value)


@pytest.mark.parametrize("line", ["", "  \n", "# HELP up helps", "#up 1", "# EOF"])
def test_comments_and_empty_lines_are_no_samples(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    "line",
    ["up", "up one", "up 1_000", "up 0x10", "up 1 1.5", "up 1 2 3", 'up{a="1} 2', 'up{a="1",a="2"} 2', "{} 1",
     'up{__name__="x"} 1', "up} 1", "up{a=1} 1", 'up{a="1"}2x'],
)  # fmt: skip
def test_what_is_no_sample_is_refused_by_its_place(line: str) -> None:
    with pytest.raises(InvalidRequest, match="x, line 1"):
        parse(line)


def test_labels_of_the_target_win_and_those_of_the_line_are_kept_beside() -> None:
    target = {"job": "node", "instance": "h:1"}
    sample = parse('up{job="inner",a="b"} 1', target)
    assert sample is not None
    want = {"__name__": "up", "a": "b", "exported_job": "inner", **target}
    assert sample.canonical == canonical_labels(want)
