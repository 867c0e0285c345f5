"""Files of a panel: every value of every series, as CSV and as JSON; too much is refused with the next step."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import NOW_MS
from support.api.ui_server import UiServer, ui_server
from tsdb.model.times import time_text
from tsdb.ui.sources import UiOptions

END_MS = NOW_MS // 60_000 * 60_000
START_MS = END_MS - 600_000
STEPS = 61


@pytest.fixture
def served() -> Iterator[UiServer]:
    # A graph has 16 points of a line and one series here; a file has all.
    with ui_server(UiOptions(points_max=16, series_max=1)) as server:
        for room in ("attic", "=cmd|' /C calc'!A0"):
            labels = {"__name__": "m", "room": room}
            server.api.samples.add(labels, [(ts, 0.1) for ts in range(START_MS, END_MS + 1, 10_000)])
        yield server


def save(server: UiServer, form: str, view: str = "graph", **parameters: Any) -> Any:
    asked = {"query": "m", "start": START_MS, "end": END_MS, "step": "10s", "as": form, "view": view, **parameters}
    return server.ask("/ui/save", **asked).json


def test_a_csv_has_a_line_for_each_value_and_a_column_for_each_label(served: UiServer) -> None:
    answer = save(served, "csv")
    lines = list(csv.reader(io.StringIO(answer["text"])))
    assert lines[0] == ["time", "__name__", "room", "value"]
    assert len(lines) - 1 == answer["values"] == 2 * STEPS
    assert [time_text(START_MS), "m", "attic", "0.1"] in lines


def test_a_label_is_no_formula_of_a_spreadsheet(served: UiServer) -> None:
    rooms = {line[2] for line in csv.reader(io.StringIO(save(served, "csv")["text"]))}
    assert rooms == {"room", "attic", "'=cmd|' /C calc'!A0"}


def test_a_json_has_the_series_with_their_values(served: UiServer) -> None:
    found = {one["metric"]["room"]: one["values"] for one in json.loads(save(served, "json")["text"])}
    assert len(found) == 2
    assert len(found["attic"]) == STEPS
    assert found["attic"][0] == [START_MS, "0.1"]


def test_a_table_is_saved_at_its_time(served: UiServer) -> None:
    lines = list(csv.reader(io.StringIO(save(served, "csv", "table")["text"])))
    assert [line[0] for line in lines[1:]] == [time_text(END_MS)] * 2


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"as": "xls"}, "none of csv, json"),
        ({"query": "1", "view": "table"}, "a file needs series"),
        ({"query": "sum("}, "unclosed left parenthesis"),
        ({"view": "samples"}, "tsdb query --raw"),
    ],
)
def test_a_file_that_cannot_be_made_is_refused_in_words(
    served: UiServer, parameters: dict[str, Any], text: str
) -> None:
    answer = served.ask(
        "/ui/save", **{"query": "m", "start": START_MS, "end": END_MS, "as": "csv", "view": "graph", **parameters}
    ).json
    assert answer["status"] == "error"
    assert text in answer["error"]


def test_a_file_of_too_many_values_is_refused_with_the_next_step(served: UiServer) -> None:
    for number in range(20):
        served.api.samples.add({"__name__": "wide", "number": str(number)}, [(START_MS, 1.0)])
    hours: dict[str, Any] = {"start": START_MS, "end": START_MS + 3 * 3_600_000, "step": "1s"}
    answer = save(served, "csv", query="last_over_time(wide[1d])", **hours)
    assert "216,020 values; the limit is 200,000: ask for fewer series" in answer["error"]
