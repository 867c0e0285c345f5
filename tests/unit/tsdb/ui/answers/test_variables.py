"""Variables of Grafana in an expression: their values, where they are not replaced, and formatting that keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import NOW_MS
from support.api.ui_server import UiServer, ui_server
from tsdb.ui.answers.variables import replaced

END_MS = NOW_MS // 60_000 * 60_000
RANGE = {"start": END_MS - 1_200_000, "end": END_MS, "step": "30s"}


@pytest.fixture
def served() -> Iterator[UiServer]:
    with ui_server() as server:
        times = range(END_MS - 1_200_000, END_MS + 1, 15_000)
        server.api.samples.add({"__name__": "m_total"}, [(ts, ts / 1000) for ts in times])
        yield server


@pytest.mark.parametrize(
    ("text", "step_ms", "value"),
    [
        ("rate(m[$__rate_interval])", 2_000, "rate(m[1m              ])"),
        ("rate(m[${__rate_interval}])", 60_000, "rate(m[1m15s             ])"),
        ("rate(m[$__interval])", 30_000, "rate(m[30s        ])"),
        ("m * $__interval_ms / 1000", 30_000, "m * 30000          / 1000"),
        ("increase(m[$__range]) / $__range_s", 1_000, "increase(m[1200s   ]) / 1200      "),
        ("m + ${__range_ms:text}", 1_000, "m + 1200000           "),
    ],
)
def test_a_variable_has_the_value_that_grafana_gives_it(text: str, step_ms: int, value: str) -> None:
    found = replaced(text, step_ms, 1_200_000)
    assert found.text == value
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    "text", ["m", 'm{a="$__range"}', "m{a='x\\'$__range'}", "m # $__range", "m[$__other]", "label_replace(m, `$1`)"]
)
def test_texts_comments_and_other_names_stay_as_they_are(text: str) -> None:
    assert replaced(text, 1_000, 1_200_000) == replaced(text, 2_000, 1_000)
    assert replaced(text, 1_000, 1_200_000).text == text


@pytest.mark.parametrize("path", ["/ui/graph", "/ui/table"])
def test_an_answer_names_the_values_of_variables(served: UiServer, path: str) -> None:
    answer = served.ask(path, query="rate(m_total[$__rate_interval])", **RANGE).json
    assert answer["infos"][0] == "As in Grafana, $__rate_interval is 1m; it fits samples every 15s."
    assert answer["series_total"] == 1


def test_the_place_of_an_error_is_one_of_the_text_with_variables(served: UiServer) -> None:
    answer = served.ask("/ui/graph", query="rate(m_total[$__rate_interval]) + rate(m_total)", **RANGE).json
    assert (answer["line"], answer["column"]) == (1, 40)


def test_copies_have_values_except_one_for_grafana(served: UiServer) -> None:
    asked: dict[str, Any] = {"query": "rate(m_total[$__rate_interval])", "view": "graph", **RANGE}
    assert "[1m " in served.ask("/ui/copy", **asked, **{"as": "cli"}).json["text"]
    assert "[$__rate_interval]" in served.ask("/ui/copy", **asked, **{"as": "grafana"}).json["text"]
    assert "m_total" not in served.ask("/ui/save", **asked, **{"as": "csv"}).json["text"].splitlines()[0]


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("sum( rate(m[5m]) )by(a)", "sum by (a) (rate(m[5m]))"),
        ("rate(m[$__rate_interval])*$__range_s", "rate(m[$__rate_interval]) * $__range_s"),
        ("rate(m[${__interval}:])  +  rate(m[$__interval])", "rate(m[$__interval:]) + rate(m[$__interval])"),
    ],
)
def test_formatting_keeps_variables(served: UiServer, text: str, formatted: str) -> None:
    assert served.ask("/ui/format", query=text).json["text"] == formatted


def test_a_long_expression_takes_several_lines(served: UiServer) -> None:
    text = " + ".join(["sum(rate(requests_total[5m]))"] * 6)
    assert len(served.ask("/ui/format", query=text).json["text"].splitlines()) > 6


@pytest.mark.parametrize(("text", "problem"), [("sum(", "unclosed left parenthesis"), ("m # why", "comments")])
def test_what_cannot_be_formatted_is_refused_in_words(served: UiServer, text: str, problem: str) -> None:
    answer = served.ask("/ui/format", query=text).json
    assert problem in answer["error"]
    assert answer["next"]


@pytest.mark.parametrize(
    ("before", "texts"),
    [
        ("rate(m_total[$__ra", ["$__range", "$__range_ms", "$__range_s", "$__rate_interval", "$__rate_interval_ms"]),
        ("rate(m_total[$__rate_interval]) + m_t", ["m_total"]),
        ('m_total{job="$__ra', []),
        ("rate(m_total[", ["$__rate_interval", "$__interval", "$__range", "30s"]),
    ],
)
def test_variables_are_completed_and_the_text_behind_them_too(served: UiServer, before: str, texts: list[str]) -> None:
    items = [one["text"] for one in served.ask("/ui/complete", before=before).json["items"]]
    assert items[: max(1, len(texts))] == texts
