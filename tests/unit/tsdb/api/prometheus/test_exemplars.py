"""`/api/v1/query_exemplars`: which series and exemplars an answer has, its order and its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import ApiServer, api_server
from tsdb.model.errors import Unavailable

UP = (("__name__", "up"), ("job", "a"))
UP_B = (("__name__", "up"), ("job", "b"))
LONG = (("__name__", "up_time"),)
NO_LABELS: dict[str, str] = {}


@pytest.fixture
def served() -> Iterator[ApiServer]:
    with api_server() as server:
        server.samples.exemplars = {
            UP_B: [(1, 2000, 0.25, {"trace_id": "b"})],
            LONG: [(1, 2500, 7.0, NO_LABELS)],
            UP: [(1, 1000, 1e21, {"z": "1", "a": 'say "é"'}), (1, 1001, 1e-7, NO_LABELS), (1, -1500, -0.0, NO_LABELS)],
        }
        yield server


def test_the_bytes_are_those_of_prometheus(served: ApiServer) -> None:
    assert (
        served.get("query_exemplars", query="up").body
        == (
            '{"status":"success","data":[{"seriesLabels":{"__name__":"up","job":"a"},"exemplars":['
            '{"labels":{"a":"say \\"é\\"","z":"1"},"value":"1e+21","timestamp":1},'
            '{"labels":{},"value":"1e-07","timestamp":1.001},'
            '{"labels":{},"value":"-0","timestamp":-1.500}]},'
            '{"seriesLabels":{"__name__":"up","job":"b"},"exemplars":['
            '{"labels":{"trace_id":"b"},"value":"0.25","timestamp":2}]}]}'
        ).encode()
    )


def series(served: ApiServer, **asked: Any) -> list[str]:
    return [" ".join(row["seriesLabels"].values()) for row in served.get("query_exemplars", **asked).data]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("up", ["up a", "up b"]),
        ('rate(up{job="b"}[5m]) / on() group_left sum(up_time)', ["up b", "up_time"]),
        ("up + up", ["up a", "up b"]),
        ('max_over_time((up{job="a"} offset 5m)[1h:1m] @ 7)', ["up a"]),
        ("nothing", []),
    ],
)
def test_all_selectors_of_a_query_choose_series_and_each_comes_once(
    served: ApiServer, query: str, found: list[str]
) -> None:
    assert series(served, query=query) == found


def test_a_range_includes_both_ends(served: ApiServer) -> None:
    assert series(served, query="up", start=2, end=2) == ["up b"]
    assert series(served, query="up", start=1.001, end=2) == ["up a", "up b"]
    assert series(served, query="up", end=1) == ["up a"]
    assert series(served, query="up", start=2.001) == []


def test_series_come_in_the_order_of_their_labels(served: ApiServer) -> None:
    one = (("a", "1"),)
    served.samples.exemplars = {
        (("aa", "1"),): [(1, 1, 1.0, NO_LABELS)],
        (("a", "1"), ("b", "1")): [(1, 1, 1.0, NO_LABELS)],
        one: [(1, 1, 1.0, NO_LABELS)],
        (("a", "10"),): [(1, 1, 1.0, NO_LABELS)],
    }
    data = served.get("query_exemplars", query='{a=~".+"} or {aa=~".+"}').data
    assert [row["seriesLabels"] for row in data] == [{"a": "1"}, {"a": "1", "b": "1"}, {"a": "10"}, {"aa": "1"}]


def test_a_query_without_a_selector_has_no_content(served: ApiServer) -> None:
    got = served.get("query_exemplars", query="1 + 1")
    assert (got.status, got.body) == (204, b"")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"query": "up", "start": 3, "end": 1}, "end timestamp must not be before start timestamp"),
        ({"query": "(up"}, "1:4: parse error: unclosed left parenthesis"),
    ],
)
def test_bad_requests_are_400(served: ApiServer, asked: dict[str, Any], problem: str) -> None:
    assert served.get("query_exemplars", **asked).failure == (400, "bad_data", problem)


def test_errors_and_warnings_of_the_read_are_those_of_the_answer(served: ApiServer) -> None:
    served.samples.warnings = ("partition 1 lags",)
    assert served.get("query_exemplars", query="up").json["warnings"] == ["partition 1 lags"]
    served.samples.error = Unavailable("a store is away", reason="no_store")
    assert served.get("query_exemplars", query="up").failure[:2] == (503, "unavailable")
