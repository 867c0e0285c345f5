"""The explorer in a browser, over samples in memory: each feature works, and bad input gets a clear text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from support.api.prometheus_server import NOW_MS
from support.api.ui_server import UiServer, ui_server
from support.browser.explorer import END_MS, START_MS, STEP_MS, Explorer, add_buckets, add_waves
from support.browser.seeded import HOSTILE
from support.browser.watched_page import WatchedPage, watched_page
from support.promql.histograms import HistogramStorage
from tsdb.model.family import Family
from tsdb.model.stale import STALE
from tsdb.rules.unit_tests.histograms import HistogramValue
from tsdb.selector.selectors import METRIC_NAME
from tsdb.ui.sources import UiOptions
from tsdb.v1 import common_pb2

RANGE = {"start": START_MS, "end": END_MS}
HOUR_MS = 3_600_000
SAMPLES = (END_MS - START_MS) // STEP_MS + 1


@pytest.fixture(scope="module")
def server() -> Iterator[UiServer]:
    with ui_server(UiOptions(exemplar_link="https://traces.example/{trace_id}")) as running:
        add_waves(running.api.samples, attic=10, kitchen=20, office=30)
        for number, text in enumerate(HOSTILE):
            running.api.samples.add({METRIC_NAME: "hostile", "number": str(number), "text": text}, [(END_MS, number)])
        yield running


@pytest.fixture(scope="module")
def kept(chromium: Browser, server: UiServer) -> Iterator[WatchedPage]:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}") as page:
        yield page


@pytest.fixture
def explorer(watched: WatchedPage) -> Explorer:
    return Explorer(watched.page)


def test_an_expression_becomes_a_graph_with_its_evidence(explorer: Explorer) -> None:
    explorer.open(**RANGE)
    explorer.run("load")
    assert [len(ys) for ys in explorer.drawn("lines")["ys"]] == [explorer.drawn("lines")["xs"][0].__len__()] * 3
    assert [text.replace("\n", "") for text in explorer.legend()] == [
        f'load{{host="{host}"}}' for host in ("attic", "kitchen", "office")
    ]
    assert explorer.evidence("from") == "memory"
    assert explorer.evidence("lag") == "none"
    assert explorer.evidence("holes") == "none"
    assert explorer.evidence("read") == f"{3 * SAMPLES} samples of 3 series"


@pytest.mark.parametrize(("lag_ms", "text"), [(1_000, "1 s"), (2_500, "2.5 s: the newest samples may be missing")])
def test_a_ready_partition_beyond_the_freshness_objective_is_in_the_evidence(
    chromium: Browser, lag_ms: int, text: str
) -> None:
    states = [
        common_pb2.PartitionState(partition=0, ready=True, from_start=True),
        common_pb2.PartitionState(partition=1, ready=True, from_start=True, lag_ms=lag_ms, lag_records=20),
    ]
    with ui_server(states=states) as running:
        add_waves(running.api.samples, attic=10)
        with watched_page(chromium, f"http://127.0.0.1:{running.port}") as watched:
            explorer = Explorer(watched.page)
            explorer.open("load", **RANGE)
            assert explorer.evidence("lag") == text


def test_an_error_stands_under_its_place_and_the_page_lives_on(explorer: Explorer, watched: WatchedPage) -> None:
    watched.expect_error("the server responded with a status of 400")
    explorer.open("load", **RANGE)
    explorer.run("sum(load) +\n  rate(load)")
    shown = explorer.problem()
    expect(shown).to_contain_text("expected type range vector")
    expect(shown).to_contain_text("Line 2, column 8.")
    line, mark = shown.locator("pre").inner_text().splitlines()
    assert (line, mark.index("▲")) == ("  rate(load)", len("  rate("))
    explorer.run("sum(load)")
    expect(shown).to_be_hidden()
    assert len(explorer.legend()) == 1


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("load{", "unexpected"),
        ("load[5m:1ms]" * 2, "unexpected"),
        ("(" * 3000 + "load" + ")" * 3000, "deep"),
        ("max_over_time(load[100y:1s])", "Ask for fewer series, a shorter range"),
    ],
)
def test_a_refused_expression_names_the_next_step(
    explorer: Explorer, watched: WatchedPage, query: str, text: str
) -> None:
    watched.expect_error("the server responded with a status of 4")
    explorer.open(**RANGE)
    explorer.run(query)
    expect(explorer.problem()).to_contain_text(text)


def test_a_drag_in_the_graph_zooms_and_back_returns(explorer: Explorer) -> None:
    explorer.open("load", **RANGE)
    box = explorer.panel().locator(".graph canvas").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    explorer.page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    explorer.page.mouse.down()
    explorer.page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=4)
    explorer.page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=4)
    explorer.page.mouse.up()
    explorer.page.wait_for_url(lambda url: f"start={START_MS}" not in url)
    explorer.wait()
    zoomed = explorer.parameters()
    length = int(zoomed["end"]) - int(zoomed["start"])
    assert 0.15 < length / (END_MS - START_MS) < 0.3
    assert START_MS < int(zoomed["start"]) < int(zoomed["end"]) < END_MS
    explorer.page.go_back()
    explorer.page.wait_for_url(lambda url: f"start={START_MS}" in url)
    explorer.wait()


def test_the_range_moves_by_buttons_and_by_keys(explorer: Explorer) -> None:
    explorer.open("load", **RANGE)
    half = (END_MS - START_MS) // 2
    explorer.page.locator("#earlier").click()
    assert explorer.parameters()["start"] == str(START_MS - half)
    explorer.page.keyboard.press("Alt+Shift+ArrowRight")
    assert explorer.parameters()["start"] == str(START_MS)
    explorer.page.locator("#wider").click()
    assert explorer.parameters()["end"] == str(END_MS + half)
    explorer.page.locator("#range").select_option("1h")
    assert explorer.parameters()["range"] == "1h"
    explorer.wait()


def test_a_table_has_the_values_at_the_end_and_raw_samples_are_exact(explorer: Explorer) -> None:
    explorer.open('load{host="attic"}', **RANGE)
    explorer.page.locator("[data-view=table]").click()
    expect(explorer.panel().locator(".rows table tbody tr")).to_have_count(1)
    explorer.page.locator("[data-view=samples]").click()
    expect(explorer.panel().locator(".rows table tbody tr")).to_have_count(SAMPLES - 1)  # (start, end]
    expect(explorer.panel().locator(".rows tbody tr").first).to_contain_text("2015-07-01 20:10:00")


def test_raw_samples_of_an_expression_are_refused_in_words(explorer: Explorer, watched: WatchedPage) -> None:
    watched.expect_error("the server responded with a status of 400")
    explorer.open("sum(load)", **{**RANGE, "p0.view": "samples"})
    expect(explorer.problem()).to_contain_text("raw samples need a selector")


def test_panels_are_added_and_removed_and_share_the_range(explorer: Explorer) -> None:
    explorer.open("load", **RANGE)
    explorer.page.locator("#add").click()
    explorer.run("sum(load)", 1)
    assert (len(explorer.legend(0)), len(explorer.legend(1))) == (3, 1)
    assert explorer.parameters()["p1.q"] == "sum(load)"
    explorer.panel(0).locator(".remove").click()
    expect(explorer.page.locator("#panels > .panel")).to_have_count(1)
    assert (explorer.parameters()["p0.q"], "p1.q" in explorer.parameters()) == ("sum(load)", False)


def test_a_link_restores_all(explorer: Explorer) -> None:
    options = {"p0.axis": "log", "p0.unit": "bytes", "p0.stack": 1, "p1.view": "table", "p1.losses": 1, "refresh": 30}
    explorer.open("load", "sum(load)", **RANGE, **options)
    opened = explorer.parameters()
    assert explorer.panel(0).locator(".axis").input_value() == "log"
    assert explorer.panel(0).locator(".unit").input_value() == "bytes"
    assert explorer.panel(0).locator(".stack").is_checked()
    assert explorer.panel(1).locator(".losses").is_checked()
    expect(explorer.panel(1).locator("[data-view=table]")).to_have_attribute("aria-pressed", "true")
    assert explorer.page.locator("#refresh").input_value() == "30"
    explorer.panel(0).locator(".unit").select_option("")
    explorer.panel(0).locator(".unit").select_option("bytes")
    assert explorer.parameters() == opened


def test_a_link_of_another_version_opens_and_names_what_it_lost(explorer: Explorer) -> None:
    explorer.open("load", **{**RANGE, "v": 7, "p0.axis": "polar", "p0.unit": "<b>"})
    notices = explorer.page.locator("main > .notice").all_inner_texts()
    assert "version '7'" in notices[0] or "version 7" in notices[0]
    assert any("polar" in one for one in notices)
    assert any("<b>" in one for one in notices)
    assert len(explorer.legend()) == 3


def test_stacked_areas_lie_on_each_other(explorer: Explorer) -> None:
    explorer.open("load", **RANGE)
    explorer.panel().locator(".stack").check()
    explorer.wait()
    tops = [row[10] for row in explorer.drawn("lines")["ys"]]
    assert tops == sorted(tops)
    assert tops[-1] > 50
    assert len(explorer.drawn("areas")["xs"]) == 3


def test_a_point_without_neighbours_is_drawn_but_not_a_zero_in_a_stack(explorer: Explorer, server: UiServer) -> None:
    server.api.samples.add({METRIC_NAME: "once"}, [(END_MS, 0.0)])
    explorer.open("once", **{**RANGE, "p0.step": "10m"})
    assert explorer.drawn("points")["x"] == [END_MS]
    explorer.panel().locator(".stack").check()
    explorer.wait()
    assert explorer.drawn("points")["x"] == []


def test_the_legend_hides_a_series_and_shows_one_alone(explorer: Explorer) -> None:
    explorer.open("load", **RANGE)
    series = explorer.panel().locator("button.series")
    series.nth(1).click()
    expect(series.nth(1)).to_have_attribute("aria-pressed", "false")
    assert len(explorer.drawn("lines")["ys"]) == 2
    series.nth(0).click(modifiers=["Control"])
    assert len(explorer.drawn("lines")["ys"]) == 1
    series.nth(0).click(modifiers=["Control"])
    assert len(explorer.drawn("lines")["ys"]) == 3


@pytest.mark.parametrize(("modifiers", "drawn"), [([], 2), (["Control"], 1)])
def test_a_link_keeps_hidden_series_and_another_expression_shows_all(
    explorer: Explorer, modifiers: list[Any], drawn: int
) -> None:
    explorer.open("load", **RANGE)
    explorer.panel().locator("button.series").nth(1).click(modifiers=modifiers)
    pressed = [button.get_attribute("aria-pressed") for button in explorer.panel().locator("button.series").all()]
    explorer.page.reload()
    explorer.wait()
    assert len(explorer.drawn("lines")["ys"]) == drawn
    again = [button.get_attribute("aria-pressed") for button in explorer.panel().locator("button.series").all()]
    assert again == pressed
    explorer.run("load * 2")
    assert len(explorer.drawn("lines")["ys"]) == 3
    assert not {"p0.hide", "p0.only"} & explorer.parameters().keys()


def test_an_expression_is_completed_and_run_by_keyboard_alone(explorer: Explorer) -> None:
    explorer.open(**RANGE)
    explorer.page.reload()
    keyboard = explorer.page.keyboard
    expect(explorer.panel().locator("textarea")).to_be_focused()
    keyboard.type("su")
    items = explorer.panel().locator(".completions li")
    expect(items.first).to_be_visible()
    keyboard.press("ArrowDown")
    keyboard.press("Tab")
    assert explorer.panel().locator("textarea").input_value() == "sum()"
    expect(items.filter(has_text="load")).to_be_visible()
    keyboard.type("loa")  # Each letter narrows the list at once: Tab never takes an older item.
    keyboard.press("Tab")
    keyboard.type(")")
    keyboard.press("Enter")
    explorer.wait()
    assert explorer.panel().locator("textarea").input_value() == "sum(load)"
    assert len(explorer.legend()) == 1


def test_labels_complete_with_their_values(explorer: Explorer) -> None:
    explorer.open(**RANGE)
    box = explorer.panel().locator("textarea")
    box.fill("")
    box.press_sequentially('load{host="k')
    expect(explorer.panel().locator(".completions li").first).to_contain_text("kitchen")


def test_completions_name_functions_in_words_and_that_there_are_more(explorer: Explorer, server: UiServer) -> None:
    for number in range(70):
        server.api.samples.add({METRIC_NAME: "wide", "number": str(number)}, [(END_MS, 1.0)])
    explorer.open(**RANGE)
    box = explorer.panel().locator("textarea")
    items = explorer.panel().locator(".completions li")
    box.press_sequentially("ra")
    expect(items.first).to_contain_text("rate(range vector)")
    expect(items.first).to_contain_text("function · The increase of a counter per second")
    box.fill("")
    box.press_sequentially('wide{number="')
    expect(items.last).to_have_text("There are more: type a letter more.")


@pytest.mark.parametrize("view", ["graph", "table", "samples"])
def test_hostile_labels_are_text(explorer: Explorer, view: str) -> None:
    explorer.open("hostile", **{**RANGE, "p0.view": view})
    rows = explorer.panel().locator(".rows")
    text = rows.inner_text()
    assert all(one.replace('"', '\\"') in text or one in text for one in HOSTILE[:5])
    assert "\x07" not in text
    assert explorer.page.title().startswith("Explorer")
    assert rows.locator("img, script").count() == 0
    assert explorer.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_values_are_completed_as_text(explorer: Explorer) -> None:
    explorer.open(**RANGE)
    box = explorer.panel().locator("textarea")
    box.fill("")
    box.press_sequentially('hostile{text="<')
    expect(explorer.panel().locator(".completions li").first).to_contain_text("<")
    assert explorer.panel().locator(".completions img, .completions script").count() == 0


def test_a_hostile_expression_in_a_link_is_text(explorer: Explorer, watched: WatchedPage) -> None:
    watched.expect_error("the server responded with a status of 400")
    explorer.open(HOSTILE[1] + HOSTILE[5], **RANGE)
    expect(explorer.problem()).to_be_visible()
    assert explorer.page.title().startswith("Explorer")


def test_a_sample_in_the_future_names_a_wrong_clock(explorer: Explorer, server: UiServer) -> None:
    ahead_ms = NOW_MS + 2 * HOUR_MS
    server.api.samples.add({METRIC_NAME: "ahead"}, [(ahead_ms, 1.0)])
    explorer.open("ahead", start=START_MS, end=ahead_ms + HOUR_MS)
    assert explorer.evidence("newest sample") == "2 h in the future: a clock is wrong"
    assert len(explorer.legend()) == 1


def test_a_graph_of_100_000_series_is_refused_with_a_next_step_and_a_table_has_the_first(chromium: Browser) -> None:
    with ui_server() as many, watched_page(chromium, f"http://127.0.0.1:{many.port}") as watched:
        watched.expect_error("the server responded with a status of 422")
        for number in range(100_000):
            many.api.samples.add({METRIC_NAME: "many", "number": str(number)}, [(END_MS, float(number))])
        explorer = Explorer(watched.page)
        explorer.open("many", **RANGE)
        expect(explorer.problem()).to_contain_text("100000 series at 601 steps; the limit is 50000000 values")
        expect(explorer.problem()).to_contain_text("Ask for fewer series, a shorter range or longer steps.")
        explorer.panel().get_by_role("button", name="Table").click()
        explorer.wait()
        expect(explorer.problem()).to_be_hidden()
        expect(explorer.panel()).to_contain_text("100,000 series at")
        assert explorer.evidence("read") == "100,000 samples of 100,000 series"
        explorer.run("count(many)")
        expect(explorer.panel().locator("tbody td.number").first).to_have_text("100,000")


@pytest.mark.parametrize(("stack", "y", "nearest"), [(0, 20, "kitchen"), (1, 5, "attic"), (1, 45, "office")])
def test_the_box_under_the_pointer_has_all_series_and_marks_the_nearest(
    explorer: Explorer, stack: int, y: float, nearest: str
) -> None:
    explorer.open("load", **{**RANGE, "p0.stack": stack})
    explorer.point_at((START_MS + END_MS) / 2, y)
    box = explorer.panel().locator(".readout")
    expect(box).to_be_visible()
    hosts = [text.split('"')[1] for text in box.locator("td.name").all_inner_texts()]
    assert hosts == ["office", "kitchen", "attic"]
    expect(box.locator("tr.nearest")).to_have_count(1)
    expect(box.locator("tr.nearest")).to_contain_text(nearest)


def test_the_list_is_sorted_by_a_column_and_filtered(explorer: Explorer, server: UiServer) -> None:
    for number in range(8):
        server.api.samples.add({METRIC_NAME: "many_rows", "number": str(number)}, [(END_MS, float(number % 5))])
    explorer.open("many_rows", **RANGE)
    explorer.panel().get_by_role("button", name="last").click()
    expect(explorer.panel().locator("th[aria-sort=descending]")).to_have_text("last")
    assert 'number="4"' in explorer.legend()[0]
    explorer.panel().locator(".filter").fill('number="7"')
    assert len(explorer.legend()) == 1
    explorer.panel().locator("table.legend tbody td").first.click()
    expect(explorer.panel().locator("table.legend tr.off")).to_have_count(1)
    assert len(explorer.drawn("lines")["ys"]) == 7
    explorer.panel().get_by_role("button", name="Table").click()
    numbers = explorer.panel().locator(".rows tbody td.name")
    expect(numbers).to_have_text(list("01234567"))
    explorer.panel().get_by_role("button", name="number", exact=True).dblclick()  # Texts: the second click turns them.
    expect(numbers).to_have_text(list("76543210"))
    explorer.panel().locator(".filter").fill('number="5"')
    expect(numbers).to_have_text(["5"])


def test_a_table_has_a_column_for_each_label(explorer: Explorer) -> None:
    explorer.open("load", **{**RANGE, "p0.view": "table"})
    heads = explorer.panel().locator(".rows thead th").all_inner_texts()
    assert heads == ["name", "host", "value"]
    expect(explorer.panel()).to_contain_text("3 series at 2015-07-01 20:10:00 UTC")
    assert explorer.evidence("evaluated at") == "2015-07-01 20:10:00 UTC"


def test_times_have_the_zone_of_the_browser_and_utc_on_demand(chromium: Browser, server: UiServer) -> None:
    context = chromium.new_context(timezone_id="Europe/Berlin")
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/?v=1&p0.q=load&p0.view=table&start={START_MS}&end={END_MS}")
    expect(page.locator(".caption")).to_contain_text("2015-07-01 22:10:00 UTC+2")
    expect(page.locator("#to")).to_have_value("2015-07-01 22:10:00")
    page.locator("#zone").select_option("UTC")
    expect(page.locator(".caption")).to_contain_text("2015-07-01 20:10:00 UTC")
    expect(page.locator("#to")).to_have_value("2015-07-01 20:10:00")
    page.reload()
    expect(page.locator(".caption")).to_contain_text("2015-07-01 20:10:00 UTC")
    label = "[...Bokeh.index.roots].at(-1)?.model.document.get_model_by_name('time_axis').axis_label"
    page.get_by_role("button", name="Graph").click()
    # A function is compiled once. The page's policy forbids to compile an expression at each further look.
    page.wait_for_function(f"() => {label} === 'UTC'")
    page.locator("#zone").select_option("")
    page.wait_for_function(f"() => {label} === 'UTC+2'")
    context.close()


def test_times_are_typed_in_the_form_in_which_they_are_shown_or_as_in_commands(explorer: Explorer) -> None:
    explorer.open("load", **RANGE)
    begin = explorer.page.locator("#from")
    begin.fill("tomorrow")
    begin.press("Tab")
    assert begin.evaluate("one => one.validationMessage").startswith("A time is such as 2026-01-31 12:00:00")
    assert explorer.parameters()["start"] == str(START_MS)
    begin.fill("2015-07-01 20:00")
    begin.press("Tab")
    explorer.page.wait_for_url(lambda url: f"start={END_MS - 10 * 60_000}" in url)
    expect(begin).to_have_value("2015-07-01 20:00:00")
    explorer.page.locator("#to").fill("yesterday")
    explorer.page.locator("#to").press("Tab")
    explorer.page.wait_for_url(lambda url: f"end={END_MS}" not in url)
    assert int(explorer.parameters()["end"]) % (24 * HOUR_MS) == 0
    explorer.page.locator("#range").select_option("other")
    explorer.page.locator("#length").fill("1.5h")
    explorer.page.locator("#length").press("Tab")
    explorer.page.wait_for_url(lambda url: "range=90m" in url)
    explorer.wait()


def test_an_error_clears_the_answer_before_it(explorer: Explorer, watched: WatchedPage) -> None:
    watched.expect_error("the server responded with a status of 4")
    explorer.open("load", **RANGE)
    explorer.run("load * on() load")
    expect(explorer.problem()).to_contain_text("Make one side unique")
    expect(explorer.panel().locator("table.legend")).to_have_count(0)
    expect(explorer.panel().locator(".evidence")).to_be_hidden()


def test_a_range_that_no_longer_moves_is_named_and_comes_back(explorer: Explorer) -> None:
    explorer.open("load", range="1h")
    fixed = explorer.page.locator("#fixed")
    expect(fixed).to_be_hidden()
    explorer.page.locator("#earlier").click()
    expect(fixed).to_contain_text("no longer moves with the clock")
    fixed.get_by_role("button", name="Show the last 1h again").click()
    expect(fixed).to_be_hidden()
    assert explorer.parameters()["range"] == "1h"


def test_a_log_axis_names_what_it_leaves_out_and_a_step_can_be_set(explorer: Explorer) -> None:
    explorer.open("load - 20", **{**RANGE, "p0.axis": "log", "p0.step": "2m"})
    expect(explorer.panel().locator(".notes")).to_contain_text("A log axis has no place for 0 and less")
    assert explorer.evidence("step") == "2 min"
    explorer.panel().locator(".step").fill("5m")
    explorer.panel().locator(".step").press("Tab")
    explorer.wait()
    assert explorer.evidence("step") == "5 min"
    assert explorer.parameters()["p0.step"] == "5m"


def test_an_answer_without_series_takes_no_space(explorer: Explorer) -> None:
    explorer.open("load", **RANGE)
    texts = {"Graph": "No series in this range.", "Table": "No series has a value", "Raw samples": "No samples in this"}
    explorer.run("no_such_metric")
    for view, text in texts.items():
        explorer.panel().get_by_role("button", name=view).click()
        expect(explorer.panel()).to_contain_text(text)
        assert explorer.panel().locator(".figure").evaluate("one => one.clientHeight") == 0


def test_on_a_phone_the_graph_and_the_table_are_on_the_first_screen(chromium: Browser, server: UiServer) -> None:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=390, height=844) as narrow:
        explorer = Explorer(narrow.page)
        explorer.open("load", **RANGE)
        box = explorer.panel().locator(".graph").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 844
        explorer.panel().get_by_role("button", name="Table").click()
        explorer.wait()
        last = explorer.panel().locator(".rows tbody tr").last.bounding_box()
        assert last is not None
        assert last["y"] + last["height"] + narrow.page.evaluate("scrollY") <= 844


def test_a_metric_is_found_by_a_part_of_its_name_and_inserted(explorer: Explorer) -> None:
    explorer.open(**RANGE)
    explorer.panel().get_by_role("button", name="Metrics").click()
    dialog = explorer.page.get_by_role("dialog", name="Metrics")
    dialog.get_by_label("Search metrics").fill("oa")
    expect(dialog.locator("tbody tr")).to_have_count(1)
    dialog.get_by_role("button", name="Labels of load").click()
    expect(dialog.locator(".labels")).to_have_text("host")
    dialog.get_by_role("button", name="load", exact=True).click()
    assert explorer.panel().locator("textarea").input_value() == "load"


def test_an_empty_panel_has_examples_that_run(chromium: Browser) -> None:
    families = {"requests_total": Family("requests_total", kind="counter", help="Requests since the start.")}
    with ui_server(families=families) as known, watched_page(chromium, f"http://127.0.0.1:{known.port}") as watched:
        add_waves(known.api.samples, attic=10)
        times = range(START_MS, END_MS + 1, STEP_MS)
        known.api.samples.add({METRIC_NAME: "requests_total"}, [(ms, float(at)) for at, ms in enumerate(times)])
        explorer = Explorer(watched.page)
        explorer.open(**RANGE)
        examples = explorer.panel().locator(".examples button")
        expect(examples).to_have_text(["count(load)", "sum(rate(requests_total[5m]))"])
        for query in examples.all_inner_texts():
            explorer.open(**RANGE)
            examples.get_by_text(query, exact=True).click()
            expect(explorer.panel().locator("table.legend tbody tr")).to_have_count(1)
            assert explorer.parameters()["p0.q"] == query


def test_a_server_without_samples_names_how_to_send_some(chromium: Browser) -> None:
    with ui_server() as empty, watched_page(chromium, f"http://127.0.0.1:{empty.port}") as watched:
        watched.page.goto("/")
        expect(watched.page.locator("#panels")).to_contain_text("There are no samples yet.")
        expect(watched.page.locator("#panels")).to_contain_text("send samples to a gateway")


@pytest.mark.parametrize(("form", "name"), [("csv", "graph.csv"), ("json", "graph.json"), ("png", "graph.png")])
def test_a_graph_is_saved_and_the_page_says_so(explorer: Explorer, form: str, name: str) -> None:
    explorer.open("load", **RANGE)
    with explorer.page.expect_download() as download:
        explorer.panel().locator(".save").select_option(form)
    data = download.value.path().read_bytes()
    assert download.value.suggested_filename == name
    assert data.startswith({"csv": b"time,__name__,host,value", "json": b"[", "png": b"\x89PNG"}[form])
    expect(explorer.page.locator(".toast")).to_have_text(f"{name} saved.")


def test_an_expression_has_colours_and_the_bracket_at_the_cursor_its_partner(explorer: Explorer) -> None:
    explorer.open("sum(load)", **RANGE)
    layer = explorer.panel().locator(".colours")
    expect(layer.locator(".is-function")).to_have_text("sum")
    expect(layer.locator(".is-metric")).to_have_text("load")
    box = explorer.panel().locator("textarea")
    box.press("End")
    expect(layer.locator(".matched")).to_have_text(["(", ")"])
    box.press_sequentially(")")
    expect(layer.locator(".unmatched")).to_have_text([")"])
    box.press("Home")
    expect(layer.locator(".matched, .unmatched")).to_have_count(0)
    # The coloured text lies on the text of the box: both break their lines at the same places.
    box.fill(" + ".join(["sum(rate(load[5m]))"] * 12))
    heights = "one => [one.clientHeight, one.scrollHeight]"
    assert layer.evaluate(heights) == box.evaluate(heights)


def test_an_expression_is_formatted_and_a_text_that_is_none_is_named(explorer: Explorer, watched: WatchedPage) -> None:
    watched.expect_error("the server responded with a status of 400")
    explorer.open("sum( rate(load[$__rate_interval]) )by(host)", **RANGE)
    box = explorer.panel().locator("textarea")
    explorer.panel().get_by_role("button", name="Format").click()
    expect(box).to_have_value("sum by (host) (rate(load[$__rate_interval]))")
    box.press("Enter")
    explorer.wait()
    expect(explorer.panel().locator(".notes")).to_contain_text("As in Grafana, $__rate_interval is 1m")
    box.fill("sum(")
    box.press("Alt+Shift+F")
    expect(explorer.problem()).to_contain_text("unclosed left parenthesis")
    assert len(explorer.legend()) == 3  # The answer of the expression that ran stays.


def test_the_history_has_what_was_run_and_keeps_stars(explorer: Explorer) -> None:
    explorer.open(**RANGE)
    for query in ("load", "sum(load)", "max(load)"):
        explorer.run(query)
    explorer.panel().get_by_role("button", name="History").click()
    dialog = explorer.page.get_by_role("dialog", name="History")
    queries = dialog.locator("li .series")
    expect(queries).to_have_text(["max(load)", "sum(load)", "load"])
    dialog.get_by_role("button", name="Star: load").click()
    expect(queries).to_have_text(["load", "max(load)", "sum(load)"])
    dialog.get_by_role("button", name="Forget those without a star").click()
    dialog.get_by_role("button", name="Close").click()
    explorer.page.reload()
    explorer.panel().get_by_role("button", name="History").click()
    expect(queries).to_have_text(["load"])
    queries.first.click()
    explorer.wait()
    expect(explorer.panel().locator("table.legend tbody tr")).to_have_count(3)
    assert explorer.parameters()["p0.q"] == "load"


def test_an_expression_is_explained_part_by_part(explorer: Explorer) -> None:
    explorer.open('sum(load) / on() group_left() sum(load{host!="attic"})', **RANGE)
    explorer.panel().get_by_role("button", name="Explain").click()
    dialog = explorer.page.get_by_role("dialog", name="Explain")
    expect(dialog.locator("tbody tr")).to_have_count(5)
    cells = [row.locator("th, td").all_inner_texts() for row in dialog.locator("tbody tr").all()]
    assert [(cell[0], cell[2]) for cell in cells[1:]] == [
        ("sum(load)", "1"),
        ("load", "3"),
        ('sum(load{host!="attic"})', "1"),
        ('load{host!="attic"}', "2"),
    ]
    assert all(cell[3].endswith("s") for cell in cells)
    explorer.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_board_is_kept_as_a_file_and_opened_from_it(explorer: Explorer, tmp_path: Path) -> None:
    others = ["count(load)"] * 8  # Ten panels are the page of a team.
    tables = {f"p{number}.view": "table" for number in range(1, 10)}
    explorer.open("load", "sum(load)", *others, **{**RANGE, **tables, "p0.stack": 1})
    page = explorer.page
    page.get_by_label("Title of the board").fill("Loads & sums")
    explorer.panel(0).get_by_label("Title").fill("All hosts")
    explorer.panel(0).get_by_label("Title").press("Tab")
    with page.expect_download() as download:
        page.get_by_label("Board", exact=True).select_option("save")
    assert download.value.suggested_filename == "Loads-sums.json"
    file = tmp_path / "board.json"
    download.value.save_as(file)
    page.goto("/")
    with page.expect_file_chooser() as chooser:
        page.get_by_label("Board", exact=True).select_option("open")
    chooser.value.set_files(file)
    expect(page.get_by_role("heading", name="Loads & sums")).to_be_visible()
    explorer.wait()
    expect(page.locator(".panel h2")).to_have_text(["All hosts", "sum(load)", *others])
    assert len(explorer.drawn("areas")["xs"]) == 3
    expect(page.locator("textarea").first).to_be_hidden()
    page.get_by_label("Board", exact=True).select_option("write")
    expect(page.locator("textarea").first).to_be_visible()
    assert "board" not in explorer.parameters()
    assert explorer.parameters()["title"] == "Loads & sums"
    file.write_text("{}")
    with page.expect_file_chooser() as chooser:
        page.get_by_label("Board", exact=True).select_option("open")
    chooser.value.set_files(file)
    expect(page.get_by_role("dialog")).to_contain_text("This file is no board")


def test_the_axis_of_values_has_the_ends_that_are_set(explorer: Explorer, watched: WatchedPage) -> None:
    watched.expect_error("the server responded with a status of 400")
    explorer.open("load", **{**RANGE, "p0.low": "0"})
    low, high = explorer.ends()
    assert low == 0
    assert 35 < high < 45
    explorer.panel().get_by_label("Highest value").fill("100")
    explorer.panel().get_by_label("Highest value").press("Tab")
    explorer.page.wait_for_url(lambda url: "p0.high=100" in url)
    explorer.wait()
    assert explorer.ends() == (0, 100)
    explorer.panel().get_by_label("Highest value").fill("-1")
    explorer.panel().get_by_label("Highest value").press("Tab")
    expect(explorer.problem()).to_contain_text("the axis ends before it begins")


def test_lines_are_compared_with_those_of_an_earlier_range(explorer: Explorer, server: UiServer) -> None:
    server.api.samples.add({METRIC_NAME: "daily"}, [(END_MS - 86_400_000, 3.0), (END_MS, 8.0)])
    explorer.open("daily", **{**RANGE, "end": END_MS + 60_000})
    assert len(explorer.drawn("lines")["ys"]) == 1
    explorer.panel().get_by_label("Compare").fill("1d")
    explorer.panel().get_by_label("Compare").press("Tab")
    explorer.page.wait_for_url(lambda url: "p0.compare=1d" in url)
    explorer.wait()
    now, then = explorer.drawn("lines")["ys"]
    assert [{one for one in row if not math.isnan(one)} for row in (now, then)] == [{8}, {3}]
    explorer.point_at(END_MS + 30_000, 8)
    row = explorer.panel().locator(".readout tr.nearest")
    expect(row).to_contain_text("1d before: 3")
    expect(row).to_contain_text("8")


def test_the_times_at_which_alerts_fired_are_marked_and_named(explorer: Explorer, server: UiServer) -> None:
    labels = {METRIC_NAME: "ALERTS", "alertname": "Warm", "alertstate": "firing", "host": "attic"}
    fired = [(ms, 1.0) for ms in range(START_MS + 300_000, START_MS + 600_001, STEP_MS)]
    server.api.samples.add(labels, [*fired, (START_MS + 600_001, STALE)])
    explorer.open("load", **{**RANGE, "p0.step": "1s"})
    assert explorer.drawn("alerts") == {"left": [], "right": []}
    explorer.panel().get_by_label("Alerts").fill("Warm")
    explorer.panel().get_by_label("Alerts").press("Tab")
    explorer.page.wait_for_url(lambda url: "p0.alerts=Warm" in url)
    explorer.wait()
    strips = explorer.drawn("alerts")
    assert (strips["left"], strips["right"]) == ([START_MS + 299_500], [START_MS + 600_500])
    assert explorer.evidence("alerts") == "1 alert fired: Warm"
    explorer.point_at(START_MS + 450_000, 10)
    expect(explorer.panel().locator(".readout .firing")).to_have_text('⚠ Warm{host="attic"} fires')
    explorer.point_at(START_MS + 900_000, 10)
    expect(explorer.panel().locator(".readout .firing")).to_have_count(0)


def test_exemplars_are_dots_with_their_labels_and_open_their_link(explorer: Explorer, server: UiServer) -> None:
    at_ms = (START_MS + END_MS) // 2
    key = ((METRIC_NAME, "load"), ("host", "attic"))
    server.api.samples.exemplars = {key: [(1, at_ms, 25.0, {"trace_id": "4bf9/2f", "user": "<b>"})]}
    try:
        explorer.open("load", **RANGE)
        assert explorer.drawn("exemplars") == {"x": [at_ms], "y": [25.0]}
        explorer.point_at(at_ms, 25.0)
        shown = explorer.panel().locator(".readout .exemplar")
        expect(shown).to_contain_text('{trace_id="4bf9/2f", user="<b>"} of load{host="attic"}')
        explorer.page.evaluate("window.open = (address) => { window.opened = address; }")
        explorer.page.mouse.down()
        explorer.page.mouse.up()
        # A function is compiled once. The page's policy forbids to compile an expression at each further look.
        explorer.page.wait_for_function("() => window.opened === 'https://traces.example/4bf9%2F2f'")
        explorer.point_at(START_MS + 60_000, 25.0)
        expect(shown).to_have_count(0)
    finally:
        server.api.samples.exemplars = {}


def test_native_histograms_are_a_heatmap_with_lines_of_quantiles(explorer: Explorer, server: UiServer) -> None:
    memory = server.api.samples.memory
    storage = HistogramStorage()
    times = range(START_MS - 300_000, END_MS + 1, STEP_MS)
    for job in ("api", "web"):
        points = [
            (ms, HistogramValue(0, 10.0 * at, 20.0 * at, positive={0: 1.0 * at, 1: 7.0 * at, 3: 2.0 * at}))
            for at, ms in enumerate(times)
        ]
        storage.add_histograms(((METRIC_NAME, "took"), ("job", job)), points)
    server.api.samples.memory = storage
    try:
        explorer.open("rate(took[5m])", **RANGE)
        assert explorer.legend() == ['{quantile="0.5"}', '{quantile="0.9"}', '{quantile="0.99"}']
        assert len(explorer.drawn("lines")["ys"]) == 3
        expect(explorer.panel().locator(".notes")).to_contain_text("quantiles of the sum of 2 native histograms")
        explorer.panel().locator(".axis").select_option("buckets")
        explorer.page.wait_for_url(lambda url: "p0.axis=buckets" in url)
        explorer.wait()
        # The rows end at 1, 2 and 8. Half of the observations lie below 1.57, in the row that is the second.
        assert set(explorer.drawn("cells")["bottom"]) == {0, 1, 2}
        lines = explorer.drawn("lines")["ys"]
        assert len(lines) == 3
        assert {int(place) for place in lines[0] if place is not None and not math.isnan(place)} == {1}
        explorer.point_at((START_MS + END_MS) / 2, 2.5)
        expect(explorer.panel().locator(".readout tr.nearest")).to_contain_text("4 … 8")
        explorer.open("took", **RANGE, **{"p0.view": "table"})
        expect(explorer.panel()).to_contain_text("{count:")
    finally:
        server.api.samples.memory = memory


def test_buckets_of_a_histogram_are_a_heatmap(explorer: Explorer, server: UiServer) -> None:
    add_buckets(server.api.samples, "0.1", "0.5", "2.5", "+Inf")
    explorer.open("sum by (le) (rate(took_seconds_bucket[5m]))", **RANGE)
    explorer.panel().locator(".axis").select_option("buckets")
    explorer.page.wait_for_url(lambda url: "p0.axis=buckets" in url)
    explorer.wait()
    cells = explorer.drawn("cells")
    assert set(cells["bottom"]) == {0, 1, 2, 3}
    assert explorer.drawn("lines")["ys"] == []
    explorer.point_at((START_MS + END_MS) / 2, 2.5)
    expect(explorer.panel().locator(".readout tr.nearest")).to_contain_text("0.5 … 2.5")
    explorer.run("load")
    expect(explorer.panel().locator(".notes")).to_contain_text("A heatmap needs the buckets of a histogram")
    explorer.panel().locator(".axis").select_option("linear")
    explorer.page.wait_for_url(lambda url: "p0.axis" not in url)
    explorer.wait()
    assert len(explorer.drawn("lines")["ys"]) == 3
