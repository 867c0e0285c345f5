"""Each place that takes the text of a selector accepts what PromQL accepts, and reads the same matchers from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import typer

import spark_backfill
from spark_backfill.source.options import source_options
from spark_backfill.source.stream.options import stream_options
from tsdb.api.prometheus.parameters import Form, selectors
from tsdb.cli.options.arguments import selector as argument
from tsdb.client.options import wire_matchers
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher, MatchType
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import VectorSelector
from tsdb.selector.selectors import parse_selector

ACCEPTED = (
    "up",
    "job:errors:rate5m",
    '{"http.requests"}',
    '{"http.requests","a.b"!="1",c=~"x|y"}',
    'up{job=""}',
    'up{job!~"a.*",}',
    "{__name__=~`up.+`}",
    "up{ort='Z\\u00fcrich'} # a comment",
    "sum",
)
REFUSED = (
    "",
    "{}",
    '{job=""}',
    '{job=~".*"}',
    "http.requests",
    'up{a.b="1"}',
    'up{job=~"("}',
    'up{job=~"a{2000}"}',
    'up{"down"}',
    'up{job="a"',
    "up{job}",
    "up down",
    "inf",
    r'up{job="\q"}',
)
PLACES = {"log": "kafka://localhost:9092", "history": "sqlite:/h"}


def of_wire(text: str) -> Iterable[Matcher]:
    return [Matcher(MatchType(int(one.type)), one.name, one.value) for one in wire_matchers(text)]


def of_command(text: str) -> Iterable[Matcher]:
    return parse_selector(argument(text))


def of_match(text: str) -> Iterable[Matcher]:
    return selectors(Form({"match[]": [text]}))[0]


def of_spark(text: str) -> Iterable[Matcher]:
    return source_options({**PLACES, "selector": text}).matchers


def of_stream(text: str) -> Iterable[Matcher]:
    return stream_options({**PLACES, "selector": text}).reading.matchers


ENTRIES: dict[str, Callable[[str], Iterable[Matcher]]] = {
    "client": of_wire,
    "command line": of_command,
    "match[]": of_match,
    "Spark source": of_spark,
    "Spark stream": of_stream,
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("text", ACCEPTED)
def test_a_selector_of_promql_has_the_same_matchers_everywhere(entry: str, text: str) -> None:
    node = parse(text)
    assert isinstance(node, VectorSelector)
    assert tuple(ENTRIES[entry](text)) == node.matchers


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("text", REFUSED)
def test_what_promql_refuses_as_a_selector_is_refused_everywhere(entry: str, text: str) -> None:
    if not text and entry.startswith("Spark"):
        assert ENTRIES[entry](text) == ()  # An empty option is an absent one.
        return
    with pytest.raises(InvalidRequest):
        parse(text) if text != "inf" else parse(text + "{}")
    with pytest.raises((InvalidRequest, typer.BadParameter)):
        ENTRIES[entry](text)


def test_an_export_refuses_what_promql_refuses_before_it_starts_a_session(tmp_path: Path) -> None:
    no_session, no_installation = cast(Any, None), cast(Any, None)
    for text in REFUSED[1:]:
        with pytest.raises(InvalidRequest) as refused:
            spark_backfill.export(no_session, no_installation, tmp_path, text)
        assert refused.value.reason in ("bad_selector", "selector_too_broad")
