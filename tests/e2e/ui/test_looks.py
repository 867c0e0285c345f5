"""How the explorer looks: kept pictures, accessibility, narrow screens, dark and light. The samples and the clock stand
still, so that pictures differ only by what draws them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support.api.ui_server import UiServer, ui_server
from support.browser.accessibility import check_accessible
from support.browser.explorer import END_MS, START_MS, Explorer, add_waves
from support.browser.pictures import check_picture
from support.browser.watched_page import watched_page
from tsdb.v1 import common_pb2

RANGE = {"start": START_MS, "end": END_MS}
SEAM_MS = START_MS + 8 * 60_000
HOLE = common_pb2.Hole(start_ms=END_MS - 300_000, end_ms=END_MS - 240_000, reason="corrupt_record", record_offset=71)
TWO = ("load", 'load{host="office"}')
VIEWS = {"p1.view": "table"}


@pytest.fixture(scope="module")
def server() -> Iterator[UiServer]:
    states = [
        common_pb2.PartitionState(partition=0, ready=True, coverage_start_ms=SEAM_MS, holes=[HOLE]),
        common_pb2.PartitionState(partition=1, reason="lagging", lag_ms=48_000, lag_records=911, from_start=True),
    ]
    with ui_server(states=states) as running:
        add_waves(running.api.samples, attic=10, kitchen=20, office=30)
        yield running


@pytest.mark.parametrize(
    ("name", "dark", "width"), [("light", False, 1000), ("dark", True, 1000), ("narrow", False, 380)]
)
def test_an_explorer_looks_as_kept_and_is_accessible(
    chromium: Browser, server: UiServer, name: str, dark: bool, width: int
) -> None:
    with watched_page(chromium, f"http://127.0.0.1:{server.port}", width=width, height=900, dark=dark) as watched:
        explorer = Explorer(watched.page)
        explorer.open(*TWO, **RANGE, **VIEWS)
        assert explorer.drawn("seams")["x"] == [SEAM_MS]
        assert explorer.drawn("holes")["left"] == [HOLE.start_ms]
        assert explorer.evidence("holes").startswith("1 hole: corrupt_record")
        assert "1 partition not ready: lagging" in explorer.evidence("lag")
        assert "history before 2015-07-01 19:58:00" in explorer.evidence("from")
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        check_accessible(watched.page)
        # Times of the server's work differ from run to run.
        took = watched.page.locator(".evidence div").filter(has_text="took")
        check_picture(f"explorer-{name}", watched.page.screenshot(mask=[took], mask_color="#808080"))
