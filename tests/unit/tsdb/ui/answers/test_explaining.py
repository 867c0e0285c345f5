"""Explaining: each part of an expression with its series; a part that has no value has its error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import NOW_MS
from support.api.ui_server import UiServer, ui_server
from tsdb.promql.syntax.parser import parse
from tsdb.ui.answers.explaining import PARTS_MAX, parts_of

END_MS = NOW_MS // 60_000 * 60_000
RANGE = {"start": END_MS - 1_200_000, "end": END_MS}


@pytest.fixture
def served() -> Iterator[UiServer]:
    with ui_server() as server:
        for room in "abc":
            times = range(END_MS - 600_000, END_MS + 1, 15_000)
            server.api.samples.add({"__name__": "m_total", "room": room}, [(ts, ts / 1000) for ts in times])
        yield server


def explain(server: UiServer, query: str) -> Any:
    return server.ask("/ui/explain", query=query, **RANGE).json


def test_each_part_has_its_series_and_its_time(served: UiServer) -> None:
    answer = explain(served, "sum((rate(m_total[$__rate_interval]))) * 2")
    found = [(one["depth"], one["text"].split("[")[0], one["kind"], one["series"]) for one in answer["rows"]]
    assert found == [
        (0, "sum((rate(m_total", "instant vector", 1),
        (1, "sum((rate(m_total", "instant vector", 1),
        (2, "rate(m_total", "instant vector", 3),
        (3, "m_total", "range vector", 3),
        (4, "m_total", "instant vector", 3),
    ]
    assert all(one["seconds"] > 0 and not one["error"] for one in answer["rows"])
    assert (answer["end_ms"], answer["left_out"]) == (END_MS, 0)


def test_a_part_without_a_value_has_its_error_and_the_others_have_their_series(served: UiServer) -> None:
    rows = explain(served, "m_total * on() m_total")["rows"]
    assert "many-to-many" in rows[0]["error"]
    assert [one["series"] for one in rows] == [None, 3, 3]


def test_a_text_that_is_no_expression_is_refused(served: UiServer) -> None:
    assert explain(served, "sum(")["status"] == "error"


def test_a_large_tree_is_cut(served: UiServer) -> None:
    answer = explain(served, " + ".join(["m_total"] * 100))
    assert (len(answer["rows"]), answer["left_out"]) == (PARTS_MAX, len(parts_of(parse("m" + " + m" * 99))) - PARTS_MAX)
