"""`rules` and `alerts` show the groups of the ruler with the fields of Prometheus, filtered as there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import ApiServer, api_server
from support.rules.shown import shown_rules
from tsdb.rules.view import shown_groups


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    groups = shown_rules()
    with api_server(rule_groups=lambda: shown_groups(groups)) as server:
        yield server


FIRING = {
    "labels": {"alertname": "Fires", "job": "j", "severity": "1.5"},
    "annotations": {"s": "j"},
    "state": "firing",
    "activeAt": "2015-07-01T20:10:51.5Z",
    "value": "1.5e+00",
}
PENDING = {**FIRING, "labels": {"alertname": "Waits", "job": "j"}, "annotations": {}, "state": "pending"}


def test_a_group_has_its_rules_and_how_far_it_is_evaluated(served: ApiServer) -> None:
    one, two = served.get("rules").data["groups"]
    assert {name: value for name, value in one.items() if name != "rules"} == {
        "name": "one",
        "file": "f.yaml",
        "interval": 30.0,
        "limit": 9,
        "evaluationTime": 0.25,
        "lastEvaluation": "2015-07-01T20:10:51.52Z",
        "evaluatedThrough": "2015-07-01T20:10:51.5Z",
        "nextEvaluation": "2015-07-01T20:11:21.5Z",
        "dueAt": "2015-07-01T20:11:36.5Z",
        "waitsFor": "partition 1 is behind",
        "repairing": 0,
        "partitions": None,
    }
    evaluated = {"health": "ok", "evaluationTime": 0.0, "lastEvaluation": "2015-07-01T20:10:51.5Z"}
    record, fires, waits, fails = one["rules"]
    assert record == {
        "name": "a:b",
        "query": "sum(x)",
        "labels": {"team": "t"},
        "samples": 0,
        "type": "recording",
        **evaluated,
    }
    assert fires == {
        "name": "Fires",
        "query": "x > 1",
        "duration": 0.0,
        "keepFiringFor": 60.0,
        "labels": {"severity": "{{ $value }}"},
        "annotations": {"s": "{{ $labels.job }}"},
        "state": "firing",
        "alerts": [FIRING],
        "corrections": [
            {
                "labels": {"alertname": "Fires"},
                "from": "2015-07-01T20:10:00Z",
                "through": "2015-07-01T20:10:30Z",
                "was": "inactive",
                "now": "firing",
                "correctedAt": "2015-07-01T20:11:00Z",
            }
        ],
        "samples": 2,
        "type": "alerting",
        **evaluated,
    }
    assert (waits["state"], waits["duration"], waits["alerts"]) == ("pending", 300.0, [PENDING])
    assert fails["health"] == "err"
    assert fails["lastError"] == "vector contains metrics with the same labelset after applying rule labels"
    never = "0001-01-01T00:00:00Z"
    assert (two["lastEvaluation"], two["rules"][0]["health"], two["rules"][0]["lastEvaluation"]) == (
        never,
        "unknown",
        never,
    )


def test_alerts_are_those_that_are_pending_or_firing(served: ApiServer) -> None:
    assert served.get("alerts").data == {"alerts": [FIRING, PENDING]}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {"one": ["a:b", "Fires", "Waits", "fails"], "two": ["later"]}),
        ({"type": "alert"}, {"one": ["Fires", "Waits"]}),
        ({"type": "record"}, {"one": ["a:b", "fails"], "two": ["later"]}),
        ({"rule_name[]": ["Fires", "later"]}, {"one": ["Fires"], "two": ["later"]}),
        ({"rule_group[]": "two"}, {"two": ["later"]}),
        ({"file[]": "other.yaml"}, {}),
        ({"match[]": '{team="t"}'}, {"one": ["a:b"]}),
        ({"match[]": ['{team="x"}', '{team=~"t|u"}']}, {"one": ["a:b"]}),
        ({"match[]": '{severity=~".+"}'}, {}),
    ],
)
def test_filters(served: ApiServer, parameters: dict[str, Any], expected: dict[str, list[str]]) -> None:
    groups = served.get("rules", **parameters).data["groups"]
    assert {group["name"]: [rule["name"] for rule in group["rules"]] for group in groups} == expected


def test_alerts_may_be_left_out(served: ApiServer) -> None:
    groups = served.get("rules", exclude_alerts="true").data["groups"]
    assert not any("alerts" in rule for group in groups for rule in group["rules"])
    assert served.get("rules", exclude_alerts="x").failure[:2] == (400, "bad_data")


def test_an_answer_without_the_groups_of_a_ruler_has_a_warning() -> None:
    with api_server(rule_groups=lambda: shown_groups(shown_rules()), rule_warnings=("ruler a is away",)) as server:
        for path in ("rules", "alerts"):
            assert server.get(path).json["warnings"] == ["ruler a is away"]


def test_a_ruler_names_the_groups_of_other_rulers(served: ApiServer) -> None:
    assert "otherGroups" not in served.get("rules").data
    with api_server(rule_others=(("f.yaml", "x"),)) as server:
        others = [{"file": "f.yaml", "name": "x"}]
        assert server.get("rules").data == {"groups": [], "otherGroups": others, "alertmanagers": []}


def test_groups_come_in_pages(served: ApiServer) -> None:
    first = served.get("rules", group_limit="1").data
    second = served.get("rules", group_limit="1", group_next_token=first["groupNextToken"]).data
    assert [group["name"] for group in (*first["groups"], *second["groups"])] == ["one", "two"]
    assert "groupNextToken" not in second
    for limit in ("0", "x"):
        assert served.get("rules", group_limit=limit).failure[:2] == (400, "bad_data")
    assert served.get("rules", group_next_token="x").failure[:2] == (400, "bad_data")
    assert served.get("rules", group_limit="1", group_next_token="gone").failure[:2] == (400, "bad_data")
