"""The list of metrics: search by name and help, what senders stated, the number of series, examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import NOW_MS
from support.api.ui_server import UiServer, ui_server
from tsdb.model.family import Family
from tsdb.model.labels import canonical_labels
from tsdb.ui.answers.metrics import EXAMPLES_MAX, ROWS_MAX, examples, matching
from tsdb.v1 import reader_pb2

FAMILIES = {
    "requests_total": Family("requests_total", "counter", "Requests that were served.", ""),
    "latency_seconds": Family("latency_seconds", "histogram", "Time to answer.", "seconds"),
    "temperature": Family("temperature", "gauge", "Of the room.", "celsius"),
}


@pytest.fixture
def served() -> Iterator[UiServer]:
    counted = reader_pb2.CardinalityResponse(series=3)
    counted.groups.add(labels=canonical_labels({"__name__": "temperature"}), series=2)
    with ui_server(families=FAMILIES, cardinality=counted) as server:
        for name in ("requests_total", "latency_seconds_bucket", "temperature", "odd name"):
            server.api.samples.add({"__name__": name, "room": "attic", "le": "1"}, [(NOW_MS, 1.0)])
        yield server


def ask(server: UiServer, **parameters: Any) -> Any:
    return server.ask("/ui/metrics", **parameters).json


def test_a_metric_has_what_its_sender_stated_and_its_number_of_series(served: UiServer) -> None:
    answer = ask(served)
    rows = {row["name"]: row for row in answer["rows"]}
    assert (answer["total"], answer["found"]) == (4, 4)
    assert rows["temperature"] == {
        "name": "temperature",
        "kind": "gauge",
        "help": "Of the room.",
        "unit": "celsius",
        "series": 2,
    }
    assert rows["latency_seconds_bucket"]["help"] == "Time to answer."
    assert (rows["odd name"]["kind"], rows["odd name"]["series"]) == ("", None)


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("TEMP", ["temperature"]),
        ("served", ["requests_total"]),
        ("time answer", ["latency_seconds_bucket"]),
        ("nothing", []),
    ],
)
def test_a_metric_is_found_by_a_part_of_its_name_or_help(served: UiServer, search: str, names: list[str]) -> None:
    assert [row["name"] for row in ask(served, search=search)["rows"]] == names


def test_names_come_before_helps() -> None:
    assert matching("room", ["a", "room_size"], {"a": Family("a", help="Of the room.")}) == ["room_size", "a"]


def test_the_labels_of_one_metric_are_listed(served: UiServer) -> None:
    assert sorted(ask(served, name="temperature")["labels"]) == ["le", "room"]


def test_examples_fit_the_kinds_of_the_metrics(served: UiServer) -> None:
    queries = [one["query"] for one in ask(served)["examples"]]
    assert sorted(queries) == [
        "histogram_quantile(0.95, sum by (le) (rate(latency_seconds_bucket[5m])))",
        "sum(rate(requests_total[5m]))",
        "temperature",
    ]


def test_examples_and_rows_are_bounded() -> None:
    names = [f"m{number}" for number in range(ROWS_MAX + 50)]
    assert len(examples(names, {})) <= EXAMPLES_MAX
    with ui_server() as server:
        for name in names:
            server.api.samples.add({"__name__": name}, [(NOW_MS, 1.0)])
        answer = ask(server)
        assert (answer["found"], len(answer["rows"])) == (len(names), ROWS_MAX)


def test_a_long_search_is_refused(served: UiServer) -> None:
    assert served.ask("/ui/metrics", search="x" * 2_000).status == 400
