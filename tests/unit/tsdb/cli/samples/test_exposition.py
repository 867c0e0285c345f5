"""A line of an exposition becomes its sample, or is refused with its place."""

from __future__ import annotations

import contextlib
import math
import time

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.data.exposition_fuzz import pages
from tsdb.cli.samples.exposition import LINE_BYTES_MAX, Dialect, ExposedSample, ExpositionParser, dialect_of_page
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels

PROMETHEUS_NAN = 0x7FF8000000000001


def bits(value: float) -> int:
    return int(np.float64(value).view(np.uint64))


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
        ('a{x="1"} 3 # {t="a"} 0.5', {"__name__": "a", "x": "1"}, None, 3.0),
        ('a{x="1"} 3 17 # {t="}",u="\\""} 0.5 9.25', {"__name__": "a", "x": "1"}, 17, 3.0),
        ("a 3 # {} 0.5", {"__name__": "a"}, None, 3.0),
        ('a{x="1"}3', {"__name__": "a", "x": "1"}, None, 3.0),
    ],
)
def test_a_sample_is_read_as_it_is_written(line: str, labels: dict[str, str], ts_ms: int | None, value: float) -> None:
    assert parse(line) == ExposedSample(canonical_labels(labels), ts_ms, value)


@pytest.mark.parametrize("text", ["NaN", "nan", "-NaN"])
def test_a_nan_is_the_one_of_prometheus(text: str) -> None:
    sample = parse(f"up {text}")
    assert sample is not None
    assert bits(sample.value) == PROMETHEUS_NAN


@pytest.mark.parametrize("line", ["", "  \n", "# HELP up helps", "#up 1", "# EOF"])
def test_comments_and_empty_lines_are_no_samples(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    "line",
    ["up", "up one", "up 1_000", "up 0x10", "up 1 1.5", "up 1 2 3", 'up{a="1} 2', 'up{a="1",a="2"} 2', "{} 1",
     'up{__name__="x"} 1', "up} 1", "up{a=1} 1", 'up{a="1"}2x', 'up{a="1"}} 2', 'up{a="1"} 3 # {t="a"}',
     'up{a="1"} 3 # t', 'up{\\"}",x="}"} 1', 'up{a="1"} # {t="a"} 0.5', "up \u0661"],
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


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ('m{instance="a",exported_instance="b"} 1', {"exported_instance": "b", "exported_exported_instance": "a"}),
        ('m{instance="a",exported_exported_instance="b"} 1',
         {"exported_instance": "a", "exported_exported_instance": "b"}),
        ('m{job="a",exported_job="b",exported_exported_job="c"} 1',
         {"exported_job": "b", "exported_exported_job": "c", "exported_exported_exported_job": "a"}),
        ('m{job=""} 1', {}),
    ],
)  # fmt: skip
def test_the_prefix_of_a_renamed_label_repeats_until_its_name_is_free(line: str, labels: dict[str, str]) -> None:
    target = {"job": "node", "instance": "h:1"}
    sample = parse(line, target)
    assert sample is not None
    assert sample.canonical == canonical_labels({"__name__": "m", **target, **labels})


@pytest.mark.parametrize(
    ("text", "ts_ms"),
    [("1395066363", 1395066363000), ("1395066363.1239", 1395066363123), ("1.5e9", 1500000000000), ("-0.0005", -1)],
)
def test_times_of_openmetrics_are_seconds(text: str, ts_ms: int) -> None:
    sample = ExpositionParser().parse(f"up 1 {text}", "x, line 1", Dialect.OPENMETRICS)
    assert sample is not None
    assert sample.ts_ms == ts_ms


@pytest.mark.parametrize("text", ["nan", "1e99", "9" * 30, "1_0", "+Inf"])
def test_what_is_no_time_of_openmetrics_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(InvalidRequest, match="x, line 1: not a time in seconds"):
        ExpositionParser().parse(f"up 1 {text}", "x, line 1", Dialect.OPENMETRICS)


@pytest.mark.parametrize(
    ("content_type", "page", "dialect"),
    [
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", b"a 1\n", Dialect.OPENMETRICS),
        ("text/plain;version=0.0.4", b"a 1\n", Dialect.TEXT),
        ("text/plain", b"a 1\n# EOF\n", Dialect.TEXT),
        ("", b"a 1\n# EOF\n", Dialect.OPENMETRICS),
        ("", b"", Dialect.TEXT),
        ("", b"a 1 # EOF", Dialect.TEXT),
    ],
)
def test_the_dialect_is_that_of_the_content_type_or_the_last_line(
    content_type: str, page: bytes, dialect: Dialect
) -> None:
    assert dialect_of_page(content_type, page) is dialect


def test_exemplars_are_counted() -> None:
    parser = ExpositionParser()
    for line in ("a 1 # {} 2", "a 1", 'a 3 # {t="b"} 2 3'):
        parser.parse(line, "x")
    assert parser.exemplars == 2


def test_four_thousand_mutated_pages_are_read_or_refused() -> None:
    read, refused = 0, 0
    for page in pages(seed=13, count=4_000):
        parser = ExpositionParser({"job": "fuzz"})
        for dialect in Dialect:
            try:
                for line in page:
                    parser.parse(line, "x", dialect)
                read += 1
            except InvalidRequest:
                refused += 1
    assert read > 100
    assert refused > 100


@pytest.mark.parametrize(
    "line",
    [
        'a{x="' + '\\"' * (LINE_BYTES_MAX // 2 - 10) + '"} 1',
        'a{x="' + '\\"' * (LINE_BYTES_MAX // 2 - 10),
        "a{" + '""' * (LINE_BYTES_MAX // 2 - 10) + "} 1",
        'a{x="1"' + ", " * (LINE_BYTES_MAX // 2 - 10) + "} 1",
        "a{" + ",".join(f'l{n}="v"' for n in range(LINE_BYTES_MAX // 11)) + "} 1",
        "a " + " " * (LINE_BYTES_MAX - 10) + "x y z",
        "a" * (LINE_BYTES_MAX - 1),
        "a 1 # " + "{" * (LINE_BYTES_MAX - 10),
        'a 1 # {x="' + '"",' * (LINE_BYTES_MAX // 3 - 10),
    ],
    ids=range(9),
)
def test_the_longest_line_is_read_in_less_than_the_square_of_its_length(line: str) -> None:
    began = time.process_time()
    with contextlib.suppress(InvalidRequest):
        parse(line)
    assert time.process_time() - began < 20.0


def test_a_line_that_both_parsers_take_says_the_same() -> None:
    """The other parser is that of prometheus_client. Lines with exemplars are left out: it reads them otherwise."""
    agreed = 0
    for page in pages(seed=14, count=2_000):
        line = page[0]
        try:
            sample = parse(line)
            # Its parser of text takes the value of an exemplar for the time.
            theirs = [s for family in text_string_to_metric_families(line) for s in family.samples]
        except (InvalidRequest, ValueError, IndexError):
            continue
        if sample is None or " # " in line:
            continue
        [their] = theirs
        assert np.float64(sample.value).tobytes() == np.float64(their.value).tobytes() or (
            math.isnan(their.value) and bits(sample.value) == PROMETHEUS_NAN
        ), line
        assert canonical_labels({"__name__": their.name} | {k: v for k, v in their.labels.items() if v}) == (
            sample.canonical
        ), line
        agreed += 1
    assert agreed > 100
