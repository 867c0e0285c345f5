"""The pages about the system show the state of a process, as the commands print it."""

from __future__ import annotations

import contextlib
import http.client
import urllib.error
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, Locator, expect

from support.browser.accessibility import check_accessible
from support.browser.seeded import FLEET, HOSTILE, Seeded
from support.browser.watched_page import WatchedPage, watched_page
from support.servers.processes import tsdb_json

PAGES = ("rules", "partitions", "pipeline", "cardinality", "cardinality?by=source", "queries", "settings")
# Ten seconds of work, so that a busy browser has time to end it. It selects a series: a subquery of constants is
# refused for its size.
SLOW = f"max_over_time(({' + '.join(['sin(vector(scalar(slow) + time()))'] * 400)})[2000000s:1s])"

pytestmark = pytest.mark.timeout(900)  # The start of a process loads or compiles all kernels.


def row(watched: WatchedPage, text: str) -> Locator:
    return watched.page.locator("#content tbody tr").filter(has_text=text)


def texts(row: Locator) -> list[str]:
    return [cell.strip() for cell in row.locator("td").all_inner_texts()]


# All pages have the same dark colors.
@pytest.mark.parametrize(
    ("page", "dark"),
    [
        *((page, False) for page in PAGES),
        (PAGES[0], True),
        *(pytest.param(page, True, marks=pytest.mark.soak) for page in PAGES[1:]),
    ],
)
def test_a_page_is_accessible_and_clean(chromium: Browser, served: Seeded, page: str, dark: bool) -> None:
    with watched_page(chromium, served.origin, dark=dark) as watched:
        watched.page.goto(f"/ui/{page}")
        expect(watched.page.locator("h1")).to_be_visible()
        for caption in watched.page.locator("section.system h2").all():
            expect(caption).to_be_visible()
        check_accessible(watched.page)


@pytest.mark.parametrize("page", PAGES)
def test_a_narrow_page_scrolls_only_its_tables(chromium: Browser, served: Seeded, page: str) -> None:
    with watched_page(chromium, served.origin, width=360, height=640) as watched:
        watched.page.goto(f"/ui/{page}")
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_navigation_reaches_each_page_by_keyboard(watched: WatchedPage) -> None:
    watched.page.goto("/")
    for name in ("Rules", "Partitions", "Pipeline", "Cardinality", "Queries", "Settings"):
        watched.page.get_by_role("link", name=name, exact=True).press("Enter")
        expect(watched.page.locator("h1")).to_have_text(name)
        expect(watched.page.locator("nav a[aria-current]").first).to_have_text(name)


def test_partitions_are_those_of_the_command(watched: WatchedPage, served: Seeded) -> None:
    states = tsdb_json("status", "--address", served.role.grpc)["partitions"]
    watched.page.goto("/ui/partitions")
    expect(watched.page.locator(".summary")).to_have_text(f"{len(states)} of {len(states)} partitions are ready.")
    shown = [texts(one) for one in watched.page.locator("section:has(h2:text('Partitions')) tbody tr").all()]
    assert [one[0] for one in shown] == [str(state["partition"]) for state in states]
    assert [one[6].replace(",", "") for one in shown] == [str(state["series"]) for state in states]
    assert [one[7].replace(",", "") for one in shown] == [str(state["samples"]) for state in states]
    assert {one[1] for one in shown} == {"ready"}


def test_the_pipeline_names_its_engine(watched: WatchedPage) -> None:
    watched.page.goto("/ui/pipeline")
    watched.page.locator("#refresh").select_option("2")  # The querier looks at the chunk stage every five seconds.
    expect(row(watched, "python")).to_have_count(1)
    assert texts(row(watched, "python"))[:2] == ["python", "1"]


def test_cardinality_counts_by_each_kind_and_leads_to_the_explorer(watched: WatchedPage) -> None:
    watched.page.goto("/ui/cardinality")
    assert texts(row(watched, "fleet_load"))[:2] == ["fleet_load", str(FLEET)]
    watched.page.get_by_role("link", name="by label", exact=True).click()
    assert texts(row(watched, "host").first)[:3] == ["host", str(FLEET), str(FLEET)]
    watched.page.get_by_role("link", name="by source", exact=True).click()
    assert texts(row(watched, "job=fleet"))[1] == str(FLEET)
    watched.page.get_by_role("link", name="by metric", exact=True).click()
    watched.page.get_by_role("link", name="fleet_load").click()
    expect(watched.page.locator("textarea")).to_have_value('count({"__name__"="fleet_load"})')


@pytest.mark.parametrize(("by", "name"), [("metric", "fleet_load"), ("source", "job=fleet"), ("label", "host")])
def test_growth_names_what_came_since(watched: WatchedPage, by: str, name: str) -> None:
    watched.page.goto(f"/ui/cardinality?by={by}")
    watched.page.get_by_role("button", name="Compare").click()
    grown = watched.page.locator("#grown tbody tr").filter(has_text=name)
    expect(grown.first).to_be_visible()
    assert texts(grown.first) == ["0", str(FLEET), str(FLEET)]


def test_hostile_labels_are_text_and_are_cut(watched: WatchedPage) -> None:
    watched.page.goto("/ui/cardinality?by=source")
    text = watched.page.locator("#content").inner_text()
    assert [one for one in HOSTILE[:5] if f"job={one}" not in text] == []
    assert "job=a␀b␇c␛[31md\\u202ee␊f" in text
    assert f"({len('job=') + len(HOSTILE[6]):,} characters)" in text
    assert watched.page.title().startswith("Cardinality")
    assert watched.page.locator("#content img, #content script, #content svg").count() == 0


def test_a_running_query_is_listed_and_ended(watched: WatchedPage, served: Seeded) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_ask, served, SLOW)
        watched.page.goto("/ui/queries")
        watched.page.locator("#refresh").select_option("2")
        # On a busy machine it is among the slow ones too, once it has ended.
        running = watched.page.locator("section:has(h2:text-is('Running'))")
        listed = running.locator("tbody tr", has_text="max_over_time")
        expect(listed).to_have_count(1)
        listed.get_by_role("button", name="End").click()
        assert asked.result(30) == 499  # Canceled.
        expect(listed).to_have_count(0)
    expect(watched.page.locator("#content")).to_contain_text("No query runs now.")


def _ask(served: Seeded, query: str) -> int:
    url = f"/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with contextlib.closing(http.client.HTTPConnection(served.role.http, timeout=60)) as connection:
        connection.request("GET", url)
        return connection.getresponse().status


def test_settings_are_those_in_effect_and_say_what_they_are_for(watched: WatchedPage, served: Seeded) -> None:
    watched.page.goto("/ui/settings")
    changed = watched.page.locator("section:has(h2:text('Set here'))")
    value = changed.locator("tr", has_text="label_value_bytes_max").locator("td")
    assert value.all_inner_texts() == ["label_value_bytes_max", "20000", "2048", "UTF-8 bytes of one label value."]
    expect(changed).to_contain_text(served.role.http.rpartition(":")[2])


def test_a_page_outlives_its_server(watched: WatchedPage) -> None:
    watched.expect_error("Failed to load resource: net::ERR_INTERNET_DISCONNECTED")
    watched.page.goto("/ui/partitions")
    watched.page.context.set_offline(True)
    watched.page.get_by_role("button", name="Refresh now").click()
    expect(watched.page.get_by_role("alert")).to_contain_text("The server does not answer; the tables are from before.")
    expect(watched.page.locator("#content tbody tr").first).to_be_visible()
    watched.page.context.set_offline(False)
    watched.page.get_by_role("button", name="Refresh now").click()
    expect(watched.page.locator(".problem")).to_be_hidden()


def test_an_unknown_kind_is_refused_in_words(watched: WatchedPage) -> None:
    watched.expect_error("the server responded with a status of 400")
    watched.page.goto("/ui/cardinality?by=<b>size</b>")
    expect(watched.page.get_by_role("alert")).to_contain_text("'<b>size</b>' is none of metric, label, pair, source")
