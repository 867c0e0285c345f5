"""How the explorer looks: kept pictures, accessibility, narrow screens, dark and light. The samples and the clock stand
still, so that pictures differ only by what draws them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Browser, Page, expect

from support.api.ui_server import UiServer, ui_server
from support.browser.accessibility import check_accessible
from support.browser.explorer import END_MS, START_MS, STEP_MS, Explorer, add_buckets, add_waves
from support.browser.pictures import check_picture
from support.browser.watched_page import watched_page
from support.rules.shown import shown_rules
from tsdb.model.family import Family
from tsdb.model.stale import STALE
from tsdb.rules.view import shown_groups
from tsdb.selector.selectors import METRIC_NAME
from tsdb.v1 import common_pb2

RANGE = {"start": START_MS, "end": END_MS}
SEAM_MS = START_MS + 8 * 60_000
HOLE = common_pb2.Hole(start_ms=END_MS - 300_000, end_ms=END_MS - 240_000, reason="corrupt_record", record_offset=71)
FIRED_MS = START_MS + 11 * 60_000
TWO = ("load", 'load{host="office"}')
VIEWS = {"p0.alerts": "Warm", "p1.view": "table"}
# In every run the first test has dark and narrow pages; those of the other parts are left to `make soak`.
LATER = partial(pytest.param, marks=pytest.mark.soak)
LOOKS = [
    ("light", False, 1280),
    LATER("dark", True, 1280),
    LATER("narrow", False, 390),
    LATER("narrow-dark", True, 390),
]


@pytest.fixture(scope="module")
def server() -> Iterator[UiServer]:
    states = [
        common_pb2.PartitionState(partition=0, ready=True, coverage_start_ms=SEAM_MS, holes=[HOLE]),
        common_pb2.PartitionState(partition=1, reason="lagging", lag_ms=48_000, lag_records=911, from_start=True),
    ]
    families = {
        "load": Family("load", kind="gauge", help="Load of a host."),
        "requests_total": Family("requests_total", kind="counter", help="Requests since the start.", unit="requests"),
    }
    groups = shown_groups(shown_rules())
    with ui_server(states=states, families=families, rule_groups=lambda: groups) as running:
        add_waves(running.api.samples, attic=10, kitchen=20, office=30)
        add_buckets(running.api.samples, "0.005", "0.025", "0.1", "0.5", "2.5", "10", "+Inf")
        running.api.samples.add({METRIC_NAME: "requests_total", "job": "shop"}, [(END_MS, 1.0)])
        fires = {METRIC_NAME: "ALERTS", "alertname": "Warm", "alertstate": "firing", "host": "attic"}
        fired = [(ms, 1.0) for ms in range(FIRED_MS, FIRED_MS + 90_001, STEP_MS)]
        running.api.samples.add(fires, [*fired, (FIRED_MS + 90_001, STALE)])
        yield running


@pytest.mark.parametrize(
    ("name", "dark", "width"),
    [("light", False, 1280), ("dark", True, 1280), ("narrow", False, 390), LATER("narrow-dark", True, 390)],
)
def test_an_explorer_looks_as_kept_and_is_accessible(
    chromium: Browser, server: UiServer, name: str, dark: bool, width: int
) -> None:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=width, height=900, dark=dark) as watched:
        explorer = Explorer(watched.page)
        explorer.open(*TWO, **RANGE, **VIEWS)
        assert explorer.drawn("seams")["x"] == [SEAM_MS]
        assert explorer.drawn("holes")["left"] == [HOLE.start_ms]
        assert explorer.evidence("alerts") == "1 alert fired: Warm"
        assert explorer.evidence("holes").startswith("1 hole: corrupt_record")
        assert "1 partition not ready: lagging" in explorer.evidence("lag")
        assert "history before 2015-07-01 19:58:00" in explorer.evidence("from")
        check_looks(watched.page, f"explorer-{name}")


@pytest.mark.parametrize(("name", "dark", "width"), LOOKS)
def test_the_box_under_the_pointer_of_a_stack_looks_as_kept(
    chromium: Browser, server: UiServer, name: str, dark: bool, width: int
) -> None:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=width, height=700, dark=dark) as watched:
        explorer = Explorer(watched.page)
        explorer.open("load", **RANGE, **{"p0.stack": 1})
        explorer.point_at(SEAM_MS, 25)
        expect(explorer.panel().locator(".readout tr.nearest")).to_contain_text("kitchen")
        check_looks(watched.page, f"stack-{name}")


@pytest.mark.parametrize(("name", "dark", "width"), LOOKS)
def test_the_list_of_metrics_looks_as_kept_and_is_accessible(
    chromium: Browser, server: UiServer, name: str, dark: bool, width: int
) -> None:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=width, height=600, dark=dark) as watched:
        explorer = Explorer(watched.page)
        explorer.open(**RANGE)
        expect(explorer.panel().locator(".examples")).to_be_visible()
        explorer.panel().get_by_role("button", name="Metrics").click()
        expect(watched.page.locator(".finder tbody tr")).to_have_count(4)
        watched.page.get_by_role("button", name="Labels of load").click()
        expect(watched.page.locator(".finder .labels:visible")).to_have_text("host")
        check_looks(watched.page, f"metrics-{name}")


@pytest.mark.parametrize(("name", "dark", "width"), LOOKS)
def test_an_expression_that_is_written_and_its_dialogs_look_as_kept_and_are_accessible(
    chromium: Browser, server: UiServer, name: str, dark: bool, width: int
) -> None:
    height = 500 if width > 1000 else 900
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=width, height=height, dark=dark) as watched:
        explorer = Explorer(watched.page)
        explorer.open(**RANGE)
        box = explorer.panel().locator("textarea")
        box.fill('sum by (host) (rate(load{host=~"a.*"}[$__rate_interval])) * 1e3 > bool 5  # comment')
        box.press("End")
        box.press("Shift+Enter")
        box.press_sequentially("/ ra")
        expect(explorer.panel().locator(".completions li").first).to_contain_text("rate(range vector)")
        check_looks(watched.page, f"writing-{name}")
        for query in ("load", "sum by (host) (rate(load[5m])) / on() group_left() sum(load)"):
            explorer.run(query)
        for dialog, masked in (("Explain", ".tree td:last-child"), ("History", ".history .time")):
            button = explorer.panel().get_by_role("button", name=dialog)
            button.focus()
            button.press("Enter")
            expect(watched.page.get_by_role("dialog", name=dialog).locator(masked).first).to_be_visible()
            check_looks(watched.page, f"{dialog.lower()}-{name}", masked)
            watched.page.keyboard.press("Escape")
            expect(button).to_be_focused()


@pytest.mark.parametrize(("name", "dark", "width"), LOOKS)
def test_a_board_looks_as_kept_and_is_accessible(
    chromium: Browser, server: UiServer, name: str, dark: bool, width: int
) -> None:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=width, height=900, dark=dark) as watched:
        panels = {"p0.title": "Hosts", "p0.stack": 1, "p1.low": "0", "p2.view": "table"}
        Explorer(watched.page).open(*TWO, "sum(load)", **RANGE, **panels, title="Loads", board=1)
        expect(watched.page.get_by_role("heading", name="Loads")).to_be_visible()
        check_looks(watched.page, f"board-{name}")


@pytest.mark.parametrize(("name", "dark", "width"), LOOKS)
def test_a_heatmap_and_a_comparison_look_as_kept(
    chromium: Browser, server: UiServer, name: str, dark: bool, width: int
) -> None:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=width, height=600, dark=dark) as watched:
        explorer = Explorer(watched.page)
        panels = {"p0.axis": "buckets", "p0.unit": "seconds", "p1.compare": "5m", "p1.title": "Load, and 5 min before"}
        explorer.open("rate(took_seconds_bucket[5m])", "load", **RANGE, **panels, title="Compare", board=1)
        explorer.panel().locator(".graph").hover(position={"x": 300, "y": 100})
        expect(explorer.panel().locator(".readout tr.nearest")).to_have_count(1)
        check_looks(watched.page, f"heatmap-{name}")


@pytest.mark.parametrize(("name", "dark", "width"), LOOKS)
def test_the_page_of_rules_looks_as_kept_and_is_accessible(
    chromium: Browser, server: UiServer, name: str, dark: bool, width: int
) -> None:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=width, height=900, dark=dark) as watched:
        watched.page.goto("/ui/rules")
        check_looks(watched.page, f"rules-{name}")
        # From the keyboard into the graph of an alert, with the times at which it fired.
        watched.page.get_by_role("link", name="Fires").first.press("Enter")
        explorer = Explorer(watched.page)
        explorer.wait()
        assert explorer.parameters()["p0.alerts"] == "Fires"
        assert explorer.evidence("alerts") == "none fired"


def check_looks(page: Page, name: str, masked: str = ".none") -> None:
    """Check a page that nothing moves any more: its picture, its width, and that everybody can use it. masked: selector
    of times that differ from run to run."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    check_accessible(page)
    took = page.locator(".evidence div").filter(has_text="took")
    check_picture(name, page.screenshot(mask=[took, page.locator(masked)], mask_color="#808080"))
