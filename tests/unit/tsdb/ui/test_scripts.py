"""Scripts of the pages without a browser: texts of numbers and times, the readout, the order of series. Their modules
without elements run in the JavaScript engine that the browser's driver brings."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection
from typing import Any

import pytest
from playwright._impl._driver import compute_driver_executable

from support.times import DURATIONS, INSTANTS, NOW_MS
from tsdb.api.prometheus.parameters import Form
from tsdb.ops.http.bodies import HttpHead
from tsdb.ui.files import OWN
from tsdb.ui.link import Panel, view_of

BERLIN = "Europe/Berlin"


def script(module: str, expression: str, zone: str = "UTC") -> Any:
    """The value of an expression over `m`, the exports of a module."""
    program = f"import * as m from {json.dumps((OWN / module).as_uri())}; console.log(JSON.stringify({expression}))"
    node, _ = compute_driver_executable()
    ran = subprocess.run(
        [node, "--no-warnings", "--input-type=module", "--eval", program],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("unit", "rows"),
    [
        (
            "",
            {
                "3.5e13": "35 T",
                "100000": "100,000",
                "123456": "123,456",
                "1234567": "1.235 M",
                "12345.678": "12,350",
                "0.1234567": "0.1235",
                "0.00012": "0.00012",
                "1e-7": "1e-7",
                "-0.5": "-0.5",
                "0": "0",
                "NaN": "NaN",
                "+Inf": "+Inf",
                "": "",
            },
        ),
        ("bytes", {"0": "0 B", "1536": "1.5 KiB", "123456789": "117.7 MiB", "-2048": "-2 KiB"}),
        ("seconds", {"0.0001234": "123.4 µs", "0.25": "250 ms", "5400": "5,400 s", "7200": "2 h", "200000": "2.315 d"}),
        ("percent", {"12.3456": "12.35 %"}),
        ("ratio", {"0": "0 %", "0.5": "50 %", "1.2345": "123.4 %"}),
        ("per_second", {"1234567": "1.235 M/s", "0.5": "0.5 /s"}),
    ],
)
def test_a_number_has_four_significant_digits_and_the_unit_that_fits(unit: str, rows: dict[str, str]) -> None:
    shown = script("format.js", f"{json.dumps(list(rows))}.map((one) => m.value(one, {json.dumps(unit)}))")
    assert dict(zip(rows, shown, strict=True)) == rows


@pytest.mark.parametrize(
    ("unit", "numbers", "shown"),
    [
        ("", [10.5, 20.25, 30], ["10.50", "20.25", "30.00"]),
        ("", [3.5e6, 2e6, 120], ["3.500 M", "2.000 M", "120"]),
        ("", [1, 2, 300], ["1", "2", "300"]),
        ("bytes", [5e9, 1e9], ["4.657 GiB", "0.931 GiB"]),
        ("", [], []),
    ],
)
def test_a_column_has_one_unit_and_aligned_decimals(unit: str, numbers: list[float], shown: list[str]) -> None:
    text = json.dumps(numbers)
    assert script("format.js", f"{text}.map((one) => m.scaled(one, m.scaleOf({text}, {json.dumps(unit)})))") == shown


def test_a_column_of_whole_numbers_beside_others_has_no_decimals() -> None:
    scale = "m.scaleOf([1, 2, 1.5], '')"
    assert script("format.js", f"m.scaled(2, m.scaleOfColumn([1, 2], {scale}))") == "2"
    assert script("format.js", f"m.scaled(1, m.scaleOfColumn([1, 1.5], {scale}))") == "1.000"


@pytest.mark.parametrize(
    ("unit", "largest", "ticks", "shown"),
    [
        ("", 3.5e13, [0, 1e13, 2e13], ["0 T", "10 T", "20 T"]),
        ("", 0.6, [0, 0.25, 0.5], ["0.00", "0.25", "0.50"]),
        ("bytes", 2.5e9, [0, 2**30, 2**31], ["0 GiB", "1 GiB", "2 GiB"]),
        ("", 5.5, [0.5], ["0.5"]),
        ("", 5.5, [], []),
    ],
)
def test_an_axis_has_the_unit_of_the_legend_and_no_power_of_ten(
    unit: str, largest: float, ticks: list[float], shown: list[str]
) -> None:
    assert script("format.js", f"m.tickNumbers({ticks}, m.scaleOf([{largest}], {json.dumps(unit)}))") == shown


def test_times_have_the_zone_of_the_browser_until_utc_is_chosen() -> None:
    expression = "[m.moment(1436000000000), m.moment(0), (m.setZone('UTC'), m.moment(1436000000000))]"
    assert script("format.js", expression, BERLIN) == [
        "2015-07-04 10:53:20 UTC+2",
        "1970-01-01 01:00:00 UTC+1",
        "2015-07-04 08:53:20 UTC",
    ]
    assert script("format.js", "m.zoneName(0)", "Asia/Kolkata") == "UTC+5:30"


def read(function: str, texts: Collection[str], *arguments: str, zone: str = "UTC") -> dict[str, int | None]:
    """The number that a function of times.js reads from each text; None where it refuses the text."""
    call = f"((text) => {{ try {{ return m.{function}(text, {', '.join(arguments)}) }} catch {{ return null }} }})"
    found = script("times.js", f"{json.dumps(list(texts))}.map({call})", zone)
    return dict(zip(texts, found, strict=True))


def test_the_page_reads_times_and_durations_as_the_commands_do() -> None:
    assert read("instantMs", INSTANTS, str(NOW_MS)) == INSTANTS
    assert read("durationMs", DURATIONS) == DURATIONS


def test_a_typed_time_is_one_of_the_zone() -> None:
    wanted = {
        "2015-07-04 10:53:20": 1_436_000_000_000,
        "2015-07-04T10:53:20.5": 1_436_000_000_500,
        "2015-07-04": 1_435_960_800_000,
        "2015-07-04T08:53:20Z": 1_436_000_000_000,
        "today": 1_435_960_800_000,
        "yesterday": 1_435_874_400_000,
        "2015-07-04 25:00": None,
    }
    assert read("instantMs", wanted, str(NOW_MS), zone=BERLIN) == wanted
    # The day before had 23 hours.
    assert read("instantMs", ["yesterday"], "Date.parse('2015-03-30T10:00Z')", zone=BERLIN) == {
        "yesterday": 1_427_583_600_000
    }


def test_a_number_in_another_unit_names_the_milliseconds() -> None:
    call = "(() => { try { m.instantMs('1436000000', 0) } catch (error) { return error.message } })()"
    assert script("times.js", call) == (
        "1436000000 looks like seconds; a number is milliseconds since 1970: 1436000000000."
    )


@pytest.mark.parametrize(("ms", "text"), [(5_400_000, "90m"), (172_800_000, "2d"), (1_500, "1500ms"), (90_000, "90s")])
def test_a_duration_has_the_largest_unit_with_a_whole_number(ms: int, text: str) -> None:
    assert script("times.js", f"m.durationText({ms})") == text


def test_an_axis_of_time_names_each_day_once() -> None:
    hours = "[82800000, 86400000, 90000000].map((ms) => ms - 3600000)"
    assert script("format.js", f"m.tickTimes({hours})", BERLIN) == ["23:00\n1970-01-01", "00:00\n1970-01-02", "01:00"]
    assert script("format.js", "m.tickTimes([0, 15000])") == ["00:00:00\n1970-01-01", "00:00:15"]
    assert script("format.js", "m.tickTimes([0, 86400000])") == ["1970-01-01", "1970-01-02"]


def test_labels_that_are_numbers_are_sorted_by_number() -> None:
    wanted = ["0.5", "9", "10", "1e3", "+Inf", "a9", "a10"]
    assert script("format.js", f"{json.dumps(wanted[::-1])}.sort(m.compareTexts)") == wanted
    buckets = [{"job": "a", "le": "2"}, {"job": "a", "le": "10"}, {"job": "a", "le": "+Inf"}, {"job": "b", "le": "1"}]
    assert script("format.js", f"{json.dumps(buckets[::-1])}.sort(m.compareSeries)") == buckets


def readout(values: list[list[float | None]], y: float, at: Any = None, hidden: str = "[]", **options: Any) -> Any:
    """The rows at the second of steps of a second, as (series, value, whether it is the nearest)."""
    answer = json.dumps({"first_ms": 0, "step_ms": 1000, "at": at, "values": values})
    drawn = json.dumps({"axis": "linear", "stack": False, **options})
    found = script("readout.js", f"m.rowsAt({answer}, {drawn}, new Set({hidden}), 1100, {y})")
    return [(one["index"], one["number"], one["isNearest"]) for one in found["rows"]]


def test_the_readout_has_all_series_sorted_with_the_nearest_marked() -> None:
    values: list[list[float | None]] = [[0, 10], [0, 30], [0, None], [0, 20]]
    assert readout(values, 21) == [(1, 30, False), (3, 20, True), (0, 10, False)]
    assert readout(values, 21, hidden="[3]") == [(1, 30, True), (0, 10, False)]


@pytest.mark.parametrize(("y", "nearest"), [(5, 0), (15, 1), (39, 1), (41, 2), (1000, 2), (-3, 0)])
def test_the_readout_of_a_stack_marks_the_band_under_the_pointer(y: float, nearest: int) -> None:
    rows = readout([[0, 10], [0, 30], [0, 5]], y, stack=True)
    assert [index for index, _, _ in rows] == [2, 1, 0]
    assert [index for index, _, is_nearest in rows if is_nearest] == [nearest]


def test_the_readout_of_fewer_points_has_the_nearest_of_each_series() -> None:
    assert readout([[1, 2], [3, 4]], 0, at=[[0, 3], [0, 1]]) == [(1, 4, False), (0, 1, True)]


def test_the_readout_of_a_log_axis_has_what_is_drawn() -> None:
    assert readout([[1, 0], [1, -2], [1, 3]], 1, axis="log") == [(2, 3, True)]


@pytest.mark.parametrize(
    ("newest_s", "end_s", "now_s", "text", "is_bad"),
    [
        (995, 1000, 1000, "5 s old", False),
        (100, 1000, 1000, "15 min old", True),
        (990, 1000, 90_000, "10 s before the end of the range", False),
        (1200, 1000, 1000, "3.33 min in the future: a clock is wrong", True),
        (1200, 2000, 1000, "3.33 min in the future: a clock is wrong", True),
    ],
)
def test_a_range_in_the_past_is_not_stale(newest_s: int, end_s: int, now_s: int, text: str, is_bad: bool) -> None:
    found = {"newest_ms": 1000 * newest_s, "now_ms": 1000 * now_s}
    shown = script("evidence.js", f"m.freshness({found}, {1000 * end_s})")
    assert (shown["text"], shown.get("bad", False)) == (text, is_bad)


@pytest.mark.parametrize(
    ("index", "total", "options", "has_dash", "has_symbol"),
    [
        (1, 3, {}, False, False),
        (1, 3, {"symbols": True}, True, True),
        (1, 3, {"symbols": True, "stack": True}, False, False),
        (9, 20, {}, True, False),
        (9, 20, {"stack": True}, False, False),
        (1, 40, {"symbols": True}, False, False),
        (9, 40, {"symbols": True}, True, False),
    ],
)
def test_dashes_and_symbols_come_where_they_help(
    index: int, total: int, options: dict[str, bool], has_dash: bool, has_symbol: bool
) -> None:
    drawn = json.dumps({"theme": "light", "stack": False, "symbols": False, **options})
    found = script("look.js", f"m.look({index}, {total}, {drawn})")
    assert (found["dash"] != [], found["marker"] is not None) == (has_dash, has_symbol)


def test_an_alert_has_its_name_before_its_other_labels() -> None:
    labels = {"__name__": "ALERTS", "alertname": "Warm", "alertstate": "firing", "host": "attic"}
    assert script("format.js", f"m.alertText({json.dumps(labels)})") == 'Warm{host="attic"}'


def test_a_log_axis_counts_what_it_leaves_out() -> None:
    assert script("panel.js", "m.notPositive({ values: [[1, 0, -1, null], [null, 2]] })") == 2


@pytest.mark.parametrize(
    ("insert", "kind", "before", "following", "close"),
    [
        ("rate(", "function", "", "", ")"),
        ("rate(", "function", "", ")", ")"),
        ("rate(", "function", "", "load", ""),
        ("kitchen", "value", '"', "", '"'),
        ("kitchen", "value", "'", "'", ""),
        ("load", "metric", "(", "", ""),
    ],
)
def test_a_completion_closes_what_it_opens(insert: str, kind: str, before: str, following: str, close: str) -> None:
    arguments = ", ".join(map(json.dumps, (insert, kind, before, following)))
    assert script("complete.js", f"m.closing({arguments})") == close


def test_a_metric_with_another_name_is_inserted_as_a_selector() -> None:
    assert script("finder.js", "['load', 'a b'].map(m.selectorOf)") == ["load", '{"a b"}']


def test_each_word_of_an_expression_has_the_colour_of_its_kind() -> None:
    text = 'sum by (job) (rate(m{a="b", c=~`d`}[$__range])) / on(x) inf > 1e3 # why'
    kinds = script("syntax.js", f"m.parts({json.dumps(text)}).map((one) => [one.text, one.kind])")
    assert "".join(part for part, _ in kinds) == text
    assert [(part, kind) for part, kind in kinds if kind not in ("other", "bracket")] == [
        ("sum", "function"),
        ("by", "keyword"),
        ("job", "label"),
        ("rate", "function"),
        ("m", "metric"),
        ("a", "label"),
        ('"b"', "text"),
        ("c", "label"),
        ("`d`", "text"),
        ("$__range", "variable"),
        ("on", "keyword"),
        ("x", "label"),
        ("inf", "number"),
        ("1e3", "number"),
        ("# why", "comment"),
    ]


@pytest.mark.parametrize(
    "text", ['m{a="', "m{'\\", "`", "sum(", ")", "[5m", "\U0001f600 m", "", "\n\n", "$", "0x", "5m30s", "m:\x00"]
)
def test_an_unfinished_text_has_colours_and_loses_no_character(text: str) -> None:
    assert script("syntax.js", f"m.parts({json.dumps(text)}).map((one) => one.text).join('')") == text


@pytest.mark.parametrize(
    ("text", "cursor", "places", "is_matched"),
    [
        ("a(b[c])", 2, [1, 6], True),
        ("a(b[c])", 7, [1, 6], True),
        ("a(b[c])", 5, [3, 5], True),
        ("a(b", 2, [1], False),
        ("a(b]", 2, [1], False),
        ("a)b", 1, [1], False),
        ("a(')')", 2, [1, 5], True),
    ],
)
def test_the_bracket_at_the_cursor_has_its_partner(text: str, cursor: int, places: list[int], is_matched: bool) -> None:
    found = script("syntax.js", f"m.pair(m.parts({json.dumps(text)}), {cursor})")
    assert found == {"places": places, "isMatched": is_matched}


STORAGE = "((all) => ({ getItem: (k) => all.get(k) ?? null, setItem: (k, v) => all.set(k, v) }))(new Map())"


def history(steps: str) -> Any:
    return script(
        "history.js", f"((s) => {{ {steps}; return m.entries(s).map((one) => [one.query, !!one.starred]) }})({STORAGE})"
    )


def test_the_history_has_each_expression_once_and_keeps_stars() -> None:
    ran = "m.remember('a', 1, s); m.remember('b', 2, s); m.star('a', true, s); m.remember('a', 3, s)"
    assert history(ran) == [["a", True], ["b", False]]
    assert history(f"{ran}; m.forget(s)") == [["a", True]]


def test_the_history_is_bounded_and_survives_what_is_no_history() -> None:
    starred = "m.remember('first', 0, s); m.star('first', true, s)"
    found = history(f"{starred}; for (let i = 1; i < 300; i += 1) m.remember('q' + i, i, s); m.remember(' ', 400, s)")
    assert (len(found), found[0], found[-1]) == (101, ["q299", False], ["first", True])
    for text in ("{", "{}", '[1, null, {"query": 3}]'):
        assert history(f"s.setItem('queries', {json.dumps(text)})") == []


PANEL = {
    "query": 'sum(m{a="é&"})',
    "view": "table",
    "axis": "log",
    "low": "0",
    "title": "T",
    "stack": True,
    "hide": ["{}"],
}
VIEW = {"times": {"range": "1h"}, "refresh_s": 5, "title": "A & B", "board": True, "panels": [PANEL, {"query": "up"}]}


def test_a_board_comes_back_from_its_file_and_the_server_reads_its_link() -> None:
    link = script("board.js", f"m.linkOf({json.dumps(VIEW)}, '1').toString()")
    assert script("board.js", f"m.linkOf(m.viewOf(m.textOf({json.dumps(VIEW)})), '1').toString()") == link
    view, problems = view_of(Form.of(HttpHead("GET", "/", link, {}), b""), NOW_MS)
    assert problems == []
    assert (view.title, view.board, view.range, view.refresh_s) == ("A & B", True, "1h", 5)
    assert view.panels == [
        Panel('sum(m{a="é&"})', "table", axis="log", low="0", title="T", stack=True, hide=("{}",)),
        Panel("up"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "This file is no JSON"),
        ("[]", "This file is no board"),
        ('{"kind": "kafka-tsdb board", "version": 1}', "This file is no board"),
        ('{"kind": "kafka-tsdb board", "version": 2, "panels": []}', "version 2; this page reads version 1"),
    ],
)
def test_a_file_that_is_no_board_is_refused_in_words(text: str, problem: str) -> None:
    refused = "((text) => { try { return m.viewOf(text) } catch (error) { return error.message } })"
    assert problem in script("board.js", f"{refused}({json.dumps(text)})")


def test_a_board_of_wrong_types_keeps_what_can_be_read() -> None:
    panels = [None, 3, {"query": 7, "hide": "x", "stack": "yes", "view": {}}]
    text = json.dumps({"kind": "kafka-tsdb board", "version": 1, "panels": panels, "title": [], "refresh_s": "soon"})
    link = script("board.js", f"m.linkOf(m.viewOf({json.dumps(text)}), '1').toString()")
    assert link == "v=1&board=1&p0.q=&p1.q=&p2.q=7"


def buckets(hidden: str = "[]") -> str:
    rows = {"+Inf": [10, None], "10": [9, 4], "2": [3, 4], "": [99, 99]}
    answer = {
        "series": [{"le": le} if le else {"job": "a"} for le in rows],
        "values": list(rows.values()),
        "first_ms": 0,
        "step_ms": 1000,
        "at": None,
    }
    return f"m.bucketsOf({json.dumps(answer)}, new Set({hidden}))"


def test_a_heatmap_has_the_counts_of_buckets_and_not_of_those_below_them() -> None:
    found = script("heatmap.js", buckets())
    counts = [[3, 4], [6, 0], [1, None]]
    assert found == {"lower": [0, 2, 10], "bounds": [2, 10, None], "times": [0, 1000], "counts": counts}
    cells = script("heatmap.js", f"m.cellsOf({buckets()}, 'red')")
    assert (cells["left"], cells["bottom"]) == ([-500, 500, -500, -500], [0, 0, 1, 2])
    assert max(cells["alpha"]) == 1
    assert script("heatmap.js", buckets("[0, 1, 2]")) is None


NATIVE = {
    "heatmap": {
        "lower": ["-1", "1", "2"],
        "upper": ["-0.5", "2", "+Inf"],
        "counts": [[1, 2], [3, None], [0, 4]],
        "lines": 3,
    },
    "first_ms": 5000,
    "step_ms": 1000,
}


def test_a_heatmap_of_native_histograms_has_the_cells_of_the_answer() -> None:
    native = f"m.bucketsOf({json.dumps(NATIVE)}, new Set([0]))"
    found = script("heatmap.js", native)
    assert (found["lower"], found["bounds"]) == ([-1, 1, 2], [-0.5, 2, None])
    assert (found["times"], found["counts"]) == ([5000, 6000], [[1, 2], [3, None], [0, 4]])
    cells = script("heatmap.js", f"m.cellsOf({native}, 'red')")
    assert (cells["left"], cells["bottom"]) == ([4500, 5500, 4500, 5500], [0, 0, 1, 2])
    read = script("heatmap.js", f"m.countsAt({native}, 5000, 1.5, String)")
    assert [(one["name"], one["number"]) for one in read["rows"]] == [
        ("2 … Infinity", 0),
        ("1 … 2", 3),
        ("-1 … -0.5", 1),
    ]


@pytest.mark.parametrize(
    ("number", "place"),
    [("-0.75", 0.5), ("0", 1), ("1", 1), ("1.5", 1.5), ("2", 2), ("9", 2.5), ("null", None), ("-2", 0)],
)
def test_a_quantile_lies_within_its_bucket_on_the_axis(number: str, place: float | None) -> None:
    assert script("heatmap.js", f"m.placeOf(m.bucketsOf({json.dumps(NATIVE)}, new Set()), {number})") == place


def test_the_readout_of_a_heatmap_marks_the_bucket_under_the_pointer() -> None:
    found = script("heatmap.js", f"m.countsAt({buckets()}, 400, 1.5, String)")
    assert found["at_ms"] == 0
    assert [(one["name"], one["number"], one["isNearest"]) for one in found["rows"]] == [
        ("10 … Infinity", 1, False),
        ("2 … 10", 6, True),
        ("0 … 2", 3, False),
    ]
