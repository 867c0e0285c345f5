"""The page of rules, as HTML: how far groups are evaluated, alerts, each rule, links to graphs with alerts marked."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.api.prometheus_server import NOW_MS
from support.api.ui_server import UiServer, ui_server
from support.rules.shown import AT_MS, RULES, shown_rules
from tsdb.api.prometheus.parameters import Form
from tsdb.ops.http.bodies import HttpHead
from tsdb.promql.syntax.features import Features
from tsdb.rules.schedule import ScheduledGroup
from tsdb.rules.view import shown_groups
from tsdb.ui.link import Panel, view_of
from tsdb.ui.pages.system.rules import graph_link

HOSTILE = "<script>alert(1)</script>\x00\u202e"


@contextmanager
def served(groups: list[ScheduledGroup]) -> Iterator[UiServer]:
    with ui_server(rule_groups=lambda: shown_groups(groups)) as server:
        yield server


def body(server: UiServer, **parameters: str) -> str:
    got = server.get("/ui/rules", **parameters)
    assert got.status == 200, got.body
    return got.body.decode()


def plain(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split())


def rows(text: str, caption: str) -> list[list[str]]:
    """The texts of the cells of one table."""
    (section,) = re.findall(rf"<section[^>]*>\s*<h2>{caption}.*?</section>", text, re.DOTALL)
    found = re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL)[1:]
    return [[plain(one) for one in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in found]


def test_a_group_has_how_far_it_is_evaluated_its_cost_and_its_lag() -> None:
    with served(shown_rules()) as server:
        text = body(server)
    assert rows(text, "Groups") == [
        [
            *("one", "f.yaml", "4", "30 s", "2015-07-01 20:10:51.500", "2015-07-01 20:11:21.500", "none", "250 ms"),
            *("4", "0", "partition 1 is behind"),
        ],
        ["two", "f.yaml", "1", "1 min", "–", "–", "–", "0 ms", "0", "0", "–"],
    ]
    assert "2 groups with 5 rules; alerts: 1 firing, 1 pending." in plain(text)
    assert "1 rule failed at the last evaluation and kept its state." in plain(text)
    assert "behind complete data" not in text


def test_rules_that_need_somebody_come_first() -> None:
    with served(shown_rules()) as server:
        text = body(server)
    found = rows(text, "Rules")
    assert [(row[0], row[2]) for row in found] == [
        ("fails", "⚠ failed"),
        ("Fires", "firing"),
        ("Waits", "pending"),
        ("a:b", "ok"),
        ("later", "not yet"),
    ]
    assert found[0][-1] == "⚠ vector contains metrics with the same labelset after applying rule labels"
    assert [(row[0], row[1], row[3]) for row in rows(text, "Alerts")] == [
        ("Fires", "⚠ firing", "1.5"),
        ("Waits", "pending", "1.5"),
    ]
    assert rows(text, "Alerts")[0][4] == 'job="j", severity="1.5"'


def test_a_late_group_is_marked_with_the_reason_of_its_wait() -> None:
    two, one = shown_rules()
    late = replace(one, next_ms=NOW_MS - 90_000, due_ms=NOW_MS - 90_000)
    with served([two, late]) as server:
        text = body(server)
    assert "1 group behind complete data, one the furthest. It waits for: partition 1 is behind." in plain(text)
    assert rows(text, "Groups")[0][6] == "⚠ 1.5 min"


def test_late_samples_are_named_with_the_alerts_that_they_changed() -> None:
    one, _ = shown_groups(shown_rules())
    note = {
        "labels": {"alertname": "Fires", "job": "j"},
        "from": "2015-07-01T20:00:00Z",
        "through": "2015-07-01T20:01:00Z",
        "was": "inactive",
        "now": "firing",
        "correctedAt": "2015-07-01T20:02:00.5Z",
    }
    one["rules"][1]["corrections"] = [note]
    one["repairing"] = 7
    with ui_server(rule_groups=lambda: [one]) as server:
        text = body(server)
    assert rows(text, "Groups")[0][9] == "7"
    assert rows(text, "Corrected alerts") == [
        [
            *("Fires", 'job="j"', "2015-07-01 20:00:00", "2015-07-01 20:01:00", "inactive", "firing"),
            "2015-07-01 20:02:00.500",
        ],
    ]


def test_rulers_that_are_away_are_named() -> None:
    with ui_server(rule_groups=lambda: shown_groups(shown_rules()), rule_warnings=("ruler a is away",)) as server:
        assert "⚠ ruler a is away" in plain(body(server))


def test_one_group_is_shown_alone() -> None:
    with served(shown_rules()) as server:
        text = body(server)
        (link, _) = re.findall(r'href="(/ui/rules\?[^"]*)"', text)
        alone = server.get(html.unescape(link)).body.decode()
        gone = body(server, group="f.yaml;gone")
    assert [row[0] for row in rows(alone, "Rules")] == ["fails", "Fires", "Waits", "a:b"]
    assert "all groups" in alone
    assert "No group has this name now." in gone


def test_without_a_ruler_the_page_names_how_to_get_one() -> None:
    with ui_server() as server:
        text = body(server)
    assert "No ruler runs in this process. tsdb standalone --rules FILE" in plain(text)
    assert "<table" not in text


def test_a_ruler_without_groups_of_its_own_names_the_others() -> None:
    with ui_server(settings={"rules": ["f.yaml"]}) as server:
        text = plain(body(server))
    assert "This ruler evaluates no group now; those of its files are with other rulers." in text
    assert "No ruler runs" not in text


def test_a_querier_without_groups_says_that_rulers_have_none() -> None:
    with ui_server(settings={"rulers": ["ruler:7411"]}) as server:
        assert "The rulers that answer evaluate no group now." in plain(body(server))


def test_labels_of_alerts_are_text() -> None:
    with served(shown_rules(job=HOSTILE)) as server:
        text = body(server, group=HOSTILE) + body(server)
    assert "<script>alert" not in text
    assert "\x00" not in text
    assert "alert(1)&lt;/script&gt;" in text


def test_tables_are_bounded_and_name_what_they_leave_out() -> None:
    many = "".join(f"\n  - {{record: 'r{number}', expr: x}}" for number in range(250))
    rules = RULES.replace('\n  - {record: "a:b"', f'{many}\n  - {{record: "a:b"')
    with served(shown_rules(rules)) as server:
        text = body(server)
    assert len(rows(text, "Rules")) == 200
    assert "Rules; the first 200 of 255 are shown" in text


def rule(kind: str, query: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "name": "R", "query": query, "labels": {}, **fields}


@pytest.mark.parametrize(
    ("shown", "panels"),
    [
        (rule("alerting", "x > 1"), [Panel("x", title="R: x > 1", alerts="R")]),
        (rule("alerting", "(sum(x) <= -1)"), [Panel("sum(x)", title="R: (sum(x) <= -1)", alerts="R")]),
        (rule("alerting", "x > bool 1"), [Panel("x > bool 1", title="R: x > bool 1", alerts="R")]),
        (rule("alerting", "x > y"), [Panel("x > y", title="R: x > y", alerts="R")]),
        (rule("alerting", "absent(x)"), [Panel("absent(x)", title="R: absent(x)", alerts="R")]),
        (
            rule("recording", "sum(x)", labels={"team": 't"'}),
            [Panel('{"__name__"="R","team"="t\\""}', title="R"), Panel("sum(x)")],
        ),
    ],
)
def test_the_graph_of_a_rule_is_a_link_that_the_explorer_reads(shown: dict[str, Any], panels: list[Panel]) -> None:
    query = urlsplit(graph_link(shown, Features())).query
    view, problems = view_of(Form.of(HttpHead("GET", "/", query, {}), b""), AT_MS)
    assert (view.panels, view.range, problems) == (panels, "1h", [])
