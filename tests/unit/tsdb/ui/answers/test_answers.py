"""Answers for scripts: lines, values, samples, completions and copies, with evidence; errors in plain words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import NOW_MS
from support.api.ui_server import UiServer, ui_server
from support.data.exemplars import One
from tsdb.model.errors import HoleInRange, TsdbError, Unavailable
from tsdb.model.stale import STALE
from tsdb.promql.syntax.functions import AGGREGATIONS, FUNCTIONS
from tsdb.ui.answers.exemplars import DRAWN_MAX, link_of
from tsdb.ui.answers.functions import HELP, function_helps
from tsdb.ui.sources import UiOptions
from tsdb.v1 import common_pb2

HOSTILE = '<img src=x onerror="alert(1)">\x00\u202e'
END_MS = NOW_MS // 60_000 * 60_000
START_MS = END_MS - 600_000


def state(partition: int, **fields: Any) -> common_pb2.PartitionState:
    return common_pb2.PartitionState(**{"partition": partition, "ready": True, "from_start": True, **fields})


@pytest.fixture
def served() -> Iterator[UiServer]:
    with ui_server(UiOptions(points_max=1000, series_max=3, rows_max=5)) as server:
        times = range(START_MS, END_MS + 1, 10_000)
        for index in range(5):
            labels = {"__name__": "m", "series": str(index), "job": "a"}
            server.api.samples.add(labels, [(ts, float(index) + ts % 7) for ts in times])
        server.api.samples.add({"__name__": "n", "job": HOSTILE}, [(END_MS, math.inf)])
        yield server


def ask(server: UiServer, path: str, query: str, **parameters: Any) -> Any:
    got = server.ask(path, query=query, **{"start": START_MS, "end": END_MS, **parameters})
    assert got.json["status"] == "success", got.body
    return got.json


def refused(server: UiServer, path: str, query: str, **parameters: Any) -> Any:
    got = server.ask(path, query=query, **{"start": START_MS, "end": END_MS, **parameters})
    assert got.json["status"] == "error", got.body
    assert got.json["next"]
    return got.json


EXEMPLARS: list[One] = [
    (1, START_MS - 1, 9.0, {"trace_id": "before"}),
    (1, START_MS, 0.5, {"trace_id": "a/b?", "user": HOSTILE}),
    (1, START_MS + 1, math.nan, {}),
    (1, END_MS, 2.0, {"span_id": "1"}),
]


def test_a_graph_has_the_exemplars_of_its_range_with_labels_and_links() -> None:
    with ui_server(UiOptions(exemplar_link="https://t.example/{trace_id}?by={trace_id}")) as served:
        served.api.samples.add({"__name__": "m"}, [(START_MS, 1.0)])
        served.api.samples.exemplars = {(("__name__", "m"),): EXEMPLARS}
        assert ask(served, "/ui/graph", "rate(m[1m]) + m")["exemplars"] == [
            {
                "at": START_MS,
                "value": 0.5,
                "labels": {"trace_id": "a/b?", "user": HOSTILE},
                "series": {"__name__": "m"},
                "link": "https://t.example/a%2Fb%3F?by=a%2Fb%3F",
            },
            {"at": END_MS, "value": 2.0, "labels": {"span_id": "1"}, "series": {"__name__": "m"}, "link": ""},
        ]
        assert ask(served, "/ui/graph", "vector(1)")["exemplars"] == []


def test_the_newest_exemplars_are_drawn_and_without_a_template_none_has_a_link(served: UiServer) -> None:
    served.api.samples.exemplars = {
        (("__name__", "m"), ("x", str(n))): [(1, START_MS + n, 1.0, {"trace_id": "t"})] for n in range(DRAWN_MAX + 5)
    }
    found = ask(served, "/ui/graph", "m")["exemplars"]
    assert [one["at"] for one in found] == [START_MS + n for n in range(5, DRAWN_MAX + 5)]
    assert {one["link"] for one in found} == {""}


@pytest.mark.parametrize(
    ("template", "link"),
    [
        ("https://t/{a}", "https://t/1"),
        ("https://t/{a}/{b}", ""),
        ("https://t/{}", ""),
        ("https://t/", "https://t/"),
        ("", ""),
    ],
)
def test_a_link_needs_every_label_of_its_template(template: str, link: str) -> None:
    assert link_of(template, {"a": "1", "b": ""}) == link


def test_a_graph_has_lines_statistics_and_evidence(served: UiServer) -> None:
    answer = ask(served, "/ui/graph", "sum(m)", points=60)
    assert (answer["first_ms"], answer["step_ms"], answer["series_total"]) == (START_MS, 10_000, 1)
    assert len(answer["values"][0]) == 61
    wanted = [10.0 + 5 * (ts % 7) for ts in range(START_MS, END_MS + 1, 10_000)]
    assert answer["values"][0] == wanted
    numbers = answer["statistics"][0]
    assert (float(numbers["min"]), float(numbers["max"]), float(numbers["last"])) == (
        min(wanted),
        max(wanted),
        wanted[-1],
    )
    evidence = answer["evidence"]
    assert (evidence["samples"], evidence["series"], evidence["newest_ms"]) == (5 * 61, 5, END_MS)
    assert (evidence["seams"], evidence["from_memory"], evidence["holes_total"]) == ([], 1, 0)


def test_a_refresh_may_have_the_answer_of_another_page_and_a_run_by_hand_may_not(served: UiServer) -> None:
    first = ask(served, "/ui/graph", "sum(m)", refresh=1)
    served.api.samples.add({"__name__": "m", "series": "new"}, [(START_MS, 100.0)])
    assert ask(served, "/ui/graph", "sum(m)", refresh=1) == first
    assert ask(served, "/ui/graph", "sum(m)")["values"] != first["values"]
    assert ask(served, "/ui/graph", "sum(m)", refresh=1, points=50) != first


def test_a_refresh_is_refused_as_a_run_by_hand_is(served: UiServer) -> None:
    assert refused(served, "/ui/graph", "sum(", refresh=1) == refused(served, "/ui/graph", "sum(")


@pytest.mark.parametrize(
    ("query", "next_step"),
    [
        ("m * on(job) m", "Make one side unique"),
        ("m * on(job) sum by (job) (m)", "Name the side that has several series"),
        ('label_replace(m, "series", "", "series", ".*")', "Keep a label that tells the series apart"),
        ("double_exponential_smoothing(m[1m], 2, 0.5)", "Correct the expression"),
        ("max_over_time(m[100y:1s])", "Ask for fewer series, a shorter range or longer steps."),
    ],
)
def test_the_next_step_of_an_evaluation_fits_its_error(served: UiServer, query: str, next_step: str) -> None:
    assert refused(served, "/ui/graph", query)["next"].startswith(next_step)


@pytest.mark.parametrize(("step", "step_ms", "points"), [("30s", 30_000, 21), ("1m", 60_000, 11), ("", 10_000, 61)])
def test_a_graph_has_the_step_that_was_asked_for(served: UiServer, step: str, step_ms: int, points: int) -> None:
    answer = ask(served, "/ui/graph", "sum(m)", points=60, step=step)
    assert (answer["step_ms"], len(answer["values"][0])) == (step_ms, points)
    assert answer["first_ms"] % step_ms == 0


@pytest.mark.parametrize(("step", "text"), [("1ms", "600,001 steps"), ("soon", "no step"), ("0s", "no step")])
def test_a_step_that_cannot_be_used_is_refused_in_words(served: UiServer, step: str, text: str) -> None:
    assert text in refused(served, "/ui/graph", "m", step=step)["error"]


def test_more_series_than_are_drawn_are_counted(served: UiServer) -> None:
    answer = ask(served, "/ui/graph", "m")
    assert (len(answer["series"]), len(answer["values"]), answer["series_total"]) == (3, 3, 5)


def test_drawn_points_are_bounded_and_numbers_are_of_all_values(served: UiServer) -> None:
    answer = ask(served, "/ui/graph", "m + on() group_left vector(time() % 13)", points=2000)
    assert answer["is_reduced"]
    assert sum(map(len, answer["values"])) <= 1000
    assert all(steps == sorted(steps) for steps in answer["at"])
    full = ask(
        served, "/ui/graph", "max_over_time((m + on() group_left vector(time() % 13))[10m:1s])", start=END_MS - 1000
    )
    assert answer["statistics"][0]["max"] == full["statistics"][0]["last"]


def test_stacked_series_share_their_steps(served: UiServer) -> None:
    answer = ask(served, "/ui/graph", "m", stack=1, points=2000)
    assert answer["at"][0] == answer["at"][1] == answer["at"][2]


def test_the_seam_of_memory_and_history_is_in_the_evidence(served: UiServer) -> None:
    seam_ms = START_MS + 5000
    hole = common_pb2.Hole(partition=2, start_ms=0, end_ms=START_MS + 1, reason="corrupt_record")
    served.states[:] = [
        state(0),
        state(1, from_start=False, coverage_start_ms=seam_ms, lag_ms=700, lag_records=3),
        state(2, from_start=False, coverage_start_ms=START_MS, ready=False, reason="behind", holes=[hole]),
    ]
    evidence = ask(served, "/ui/graph", "m")["evidence"]
    assert (evidence["seams"], evidence["from_memory"]) == ([seam_ms], 2)
    assert [one["coverage_start_ms"] for one in evidence["partitions"]] == [None, seam_ms, START_MS]
    assert (evidence["partitions"][1]["lag_ms"], evidence["partitions"][2]["reason"]) == (700, "behind")
    assert evidence["holes"] == [
        {"partition": 2, "start_ms": START_MS, "end_ms": START_MS + 1, "reason": "corrupt_record"}
    ]


def test_a_table_has_whole_numbers(served: UiServer) -> None:
    answer = ask(served, "/ui/table", "m / 3")
    assert (answer["kind"], answer["rows_total"]) == ("vector", 5)
    index, at_ms, text = answer["rows"][1]
    assert (answer["series"][index]["series"], at_ms, float(text)) == ("1", END_MS, (1 + END_MS % 7) / 3)


@pytest.mark.parametrize(
    ("query", "kind", "text"), [("1/0", "scalar", "+Inf"), ('"a<b"', "text", "a<b"), ("n", "vector", "+Inf")]
)
def test_a_table_has_each_type_of_value(served: UiServer, query: str, kind: str, text: str) -> None:
    answer = ask(served, "/ui/table", query)
    assert (answer["kind"], answer["rows"][0][2]) == (kind, text)


@pytest.mark.parametrize("query", ["m", "(m)", "m[1m]", "m # all of it"])
def test_raw_samples_come_newest_first_and_are_counted(served: UiServer, query: str) -> None:
    answer = ask(served, "/ui/samples", query)
    # A range is open at its start.
    assert (answer["rows_total"], answer["series_total"], len(answer["rows"])) == (5 * 60, 5, 5)
    assert [(answer["series"][index]["series"], at) for index, at, _ in answer["rows"]] == [
        (str(index), END_MS) for index in range(5)
    ]


def test_raw_samples_of_an_expression_are_refused(served: UiServer) -> None:
    assert "raw samples need a selector" in refused(served, "/ui/samples", "rate(m[1m])")["error"]


def test_labels_are_text_in_the_answer(served: UiServer) -> None:
    assert ask(served, "/ui/table", "n")["series"] == [{"__name__": "n", "job": HOSTILE}]


def test_an_error_in_the_expression_has_its_place(served: UiServer) -> None:
    answer = refused(served, "/ui/graph", "sum(m)\n  + rte(m[5m])")
    assert (answer["line"], answer["column"]) == (2, 5)
    assert answer["error"].startswith('unknown function with name "rte"')


@pytest.mark.parametrize(
    ("error", "next_step"),
    [
        (HoleInRange("samples of partition 0 may be lost"), 'Choose "accept losses"'),
        (Unavailable("still replaying", reason="replaying"), "Run it again in a moment"),
    ],
)
def test_each_refusal_names_the_next_step(served: UiServer, error: TsdbError, next_step: str) -> None:
    served.api.samples.error = error
    answer = refused(served, "/ui/graph", "m")
    assert answer["next"].startswith(next_step)
    assert error.message in answer["error"]


def test_accepted_losses_reach_the_read_and_are_named(served: UiServer) -> None:
    served.api.samples.warnings = ("a hole",)
    answer = ask(served, "/ui/graph", "m", allow_holes=1, allow_stale=1)
    assert (served.api.samples.options[-1].allow_holes, served.api.samples.options[-1].allow_stale) == (True, True)
    assert "a hole" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"start": "x"}, "strconv.Atoi"),
        ({"start": END_MS, "end": START_MS}, "the range ends before it begins"),
        ({"end": 1 << 60}, "no time in milliseconds"),
        ({"start": "", "range": "soon"}, "no range from 1s to 100y"),
    ],
)
def test_times_that_are_none_are_refused(served: UiServer, parameters: dict[str, Any], text: str) -> None:
    assert text in refused(served, "/ui/graph", "m", **parameters)["error"]


@pytest.mark.parametrize(
    ("before", "prefix", "texts"),
    [
        ("sum(m", "m", ["m", "min", "max", "mad_over_time", "minute"]),
        ("m{", "", ["job", "series"]),
        ('m{series="', "", ["0", "1", "2", "3", "4"]),
        ('n{job="<im', "<im", [HOSTILE]),
        ("rate(m[1", "1", ["1m", "10m", "15m", "1h", "1d"]),
        ("m and", "and", []),
        ("m ;", "", []),
    ],
)
def test_completions_fit_the_cursor(served: UiServer, before: str, prefix: str, texts: list[str]) -> None:
    answer = served.ask("/ui/complete", before=before).json
    found = [one["text"] for one in answer["items"]]
    assert answer["prefix"] == prefix
    assert set(found) >= set(texts) - {"mad_over_time"}
    assert bool(found) == bool(texts)


@pytest.mark.parametrize(
    ("before", "first"), [("ra", "rate"), ("su", "sum"), ("hi", "histogram_quantile"), ("in", "increase")]
)
def test_the_function_that_most_expressions_have_comes_first(served: UiServer, before: str, first: str) -> None:
    answer = served.ask("/ui/complete", before=before).json
    assert answer["items"][0]["text"] == first
    assert answer["items"][0]["signature"].startswith(f"{first}(" if first != "sum" else "sum by (label) (")
    assert answer["items"][0]["help"].endswith(".")


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("rate", "rate(range vector)"),
        ("time", "time()"),
        ("hour", "hour([instant vector])"),
        ("round", "round(instant vector[, scalar])"),
        ("label_join", "label_join(instant vector, string, string[, string, ...])"),
        ("sum", "sum by (label) (instant vector)"),
        ("topk", "topk by (label) (scalar, instant vector)"),
    ],
)
def test_a_signature_has_the_types_of_all_arguments(name: str, signature: str) -> None:
    (found,) = (one for one in function_helps(experimental=False) if one.name == name)
    assert found.signature == signature


def test_each_function_and_aggregation_has_one_sentence_of_help() -> None:
    assert HELP.keys() == FUNCTIONS.keys() | AGGREGATIONS.keys()
    assert [one for one in HELP.values() if not re.fullmatch(r"[^.]{10,118}\.", one.replace("0.5", ""))] == []
    assert {one.name for one in function_helps(experimental=True)} == HELP.keys()
    assert "limitk" not in {one.name for one in function_helps(experimental=False)}


def test_completions_name_that_there_are_more(served: UiServer) -> None:
    assert served.ask("/ui/complete", before="n{").json["more"] is False
    for number in range(70):
        served.api.samples.add({"__name__": f"wide_{number}"}, [(END_MS, 1.0)])
    answer = served.ask("/ui/complete", before="wide").json
    assert (len(answer["items"]), answer["more"]) == (60, True)


def test_a_completed_value_is_quoted_for_its_string(served: UiServer) -> None:
    answer = served.ask("/ui/complete", before='n{job="<im').json
    assert answer["items"][0]["insert"] == HOSTILE.replace('"', '\\"')


def test_a_text_that_is_too_long_is_not_completed(served: UiServer) -> None:
    assert served.ask("/ui/complete", before="x" * 70_000).status == 400


@pytest.mark.parametrize(
    ("form", "view", "parts"),
    [
        ("cli", "graph", ["tsdb query --last 15m --step 2s --address", " -- 'a{b=\"c'\"'\"'d\"}'"]),
        ("cli", "table", ["tsdb query --address"]),
        ("cli", "samples", ["tsdb query --raw --last 15m --address"]),
        ("python", "graph", ["client.query_range(query, start_ms, end_ms, 2000)", "end_ms - 900000"]),
        ("python", "table", ["client.query(query, end_ms)"]),
        ("python", "samples", ["client.select(query, start_ms, end_ms)"]),
    ],
)
def test_copies_ask_for_the_same(served: UiServer, form: str, view: str, parts: list[str]) -> None:
    asked = {"as": form, "view": view, "query": 'a{b="c\'d"}', "range": "15m"}
    text = served.ask("/ui/copy", **asked).json["text"]
    assert all(part in text for part in parts), text
    if form == "python":
        compile(text, "copied", "exec")


def test_a_copied_panel_is_one_of_grafana(served: UiServer) -> None:
    asked = {"as": "grafana", "query": "m", "range": "1h", "unit": "bytes", "axis": "log", "stack": "1"}
    panel = json.loads(served.ask("/ui/copy", **asked).json["text"])
    assert (panel["type"], panel["targets"][0]["expr"]) == ("timeseries", "m")
    defaults = panel["fieldConfig"]["defaults"]
    assert (defaults["unit"], defaults["custom"]["scaleDistribution"]["type"]) == ("bytes", "log")
    assert defaults["custom"]["stacking"]["mode"] == "normal"


def test_an_unknown_form_of_copies_is_refused(served: UiServer) -> None:
    assert "is none of cli, python, grafana" in refused(served, "/ui/copy", "m", **{"as": "perl"})["error"]


@pytest.mark.parametrize("axis", ["linear", "log"])
def test_the_figure_has_the_sources_that_scripts_fill(served: UiServer, axis: str) -> None:
    item = served.get("/ui/figure", axis=axis, theme="dark").json
    text = json.dumps(item)
    assert all(
        f'"name": "{name}"' in text for name in ("lines", "points", "areas", "alerts", "seams", "history", "holes")
    )
    assert all(f'"name": "{name}"' in text for name in ("time_axis", "number_axis"))
    assert ("LogScale" in text or "LogAxis" in text) == (axis == "log")
    assert "CustomJS" not in text


def test_a_graph_has_the_values_of_an_earlier_range_for_the_same_labels(served: UiServer) -> None:
    add = served.api.samples.add
    for name, now, before in (("both", 5.0, 3.0), ("new", 5.0, None), ("gone", None, 3.0)):
        then = [(START_MS - 600_000, before)] if before is not None else []
        add({"__name__": "c", "is": name}, [*then, *([(START_MS, now)] if now is not None else [])])
    answer = ask(served, "/ui/graph", "c", compare="10m", step="1m", end=START_MS + 60_000)
    assert [one["is"] for one in answer["series"]] == ["both", "new"]
    by_name = dict(zip((one["is"] for one in answer["series"]), answer["earlier"]["values"], strict=True))
    assert by_name["both"] == [3.0, 3.0]
    assert by_name["new"] == [None, None]
    assert (answer["earlier"]["before"], answer["earlier"]["before_ms"], answer["earlier"]["left_out"]) == (
        "10m",
        600_000,
        1,
    )
    assert ask(served, "/ui/graph", "c")["earlier"] is None
    assert "compare" in refused(served, "/ui/graph", "c", compare="soon")["error"]


def fire(server: UiServer, name: str, state: str, *times_ms: int) -> None:
    labels = {"__name__": "ALERTS", "alertname": name, "alertstate": state, "job": HOSTILE}
    server.api.samples.add(labels, [sample for at_ms in times_ms for sample in ((at_ms, 1.0), (at_ms + 1, STALE))])


def test_a_graph_has_the_times_at_which_alerts_fired(served: UiServer) -> None:
    fire(served, "High", "firing", START_MS + 60_000, START_MS + 120_000, START_MS + 420_001)
    fire(served, "High", "pending", START_MS + 300_000)
    fire(served, 'Other"', "firing", START_MS + 180_001)  # No step is at this time.
    high = [[START_MS + 30_000, START_MS + 150_000], [START_MS + 450_000, START_MS + 510_000]]
    other = [[START_MS + 210_000, START_MS + 270_000]]
    alerts = ask(served, "/ui/graph", "sum(m)", step="1m", alerts="*")["alerts"]
    assert alerts["strips"] == [high[0], *other, high[1]]
    assert [(one["labels"]["alertname"], one["times"]) for one in alerts["series"]] == [
        ("High", high),
        ('Other"', other),
    ]
    named = ask(served, "/ui/graph", "sum(m)", step="1m", alerts='Other"')["alerts"]
    assert (named["series_total"], named["strips"]) == (1, other)
    assert ask(served, "/ui/graph", "sum(m)", alerts="Absent")["alerts"] == {
        "strips": [],
        "series": [],
        "series_total": 0,
    }
    assert ask(served, "/ui/graph", "sum(m)")["alerts"] is None
    assert "the limit is 200" in refused(served, "/ui/graph", "m", alerts="x" * 201)["error"]


def test_the_named_times_of_alerts_are_bounded_and_the_marked_ones_are_whole(served: UiServer) -> None:
    for number in range(60):
        fire(served, f"A{number}", "firing", START_MS + 10_000 * number)
    alerts = ask(served, "/ui/graph", "sum(m)", alerts="*", step="10s")["alerts"]
    assert (len(alerts["series"]), alerts["series_total"]) == (50, 60)
    assert alerts["strips"] == [[START_MS - 5_000, START_MS + 595_000]]
