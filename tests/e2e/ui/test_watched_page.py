"""The harness of the tests of pages finds faults of a page, of its accessibility and of its appearance."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Browser, Route

from support.browser.accessibility import serious_findings
from support.browser.pictures import differing_share
from support.browser.watched_page import WatchedPage, watched_page

ORIGIN = "http://127.0.0.1:9"  # Playwright answers requests of this origin; no server listens.
POLICY = "default-src 'self'; script-src 'self' 'unsafe-inline'; img-src *"
WHOLE = "<!doctype html><html lang=en><title>t</title><main><h1>t</h1>{}</main></html>"


def faults(browser: Browser, body: str, *, expected: str = "$^") -> list[str]:
    """Faults of a page with this body, after all of its requests."""

    def answer(route: Route) -> None:
        route.fulfill(body=WHOLE.format(body), content_type="text/html", headers={"content-security-policy": POLICY})

    with watched_page(browser, ORIGIN) as watched:
        watched.page.route("**/*", answer)
        watched.page.goto("/")
        # The browser reports a rejected promise in a task after the load, and before the end of a later task.
        watched.page.evaluate("new Promise((done) => setTimeout(done))")
        watched.expect_error(expected)
        found = watched.faults()
        watched.expect_error("")
    return found


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<script>console.error('a row is missing')</script>", "a row is missing"),
        ("<script>undefined_function()</script>", "undefined_function is not defined"),
        ("<script>Promise.reject(new Error('not awaited'))</script>", "not awaited"),
        ("<script>fetch('http://127.0.0.1:10/x').catch(() => 0)</script>", "violates the following Content Security"),
        ("<style>p { color: red }</style>", "violates the following Content Security"),
        ("<script>new WebSocket('ws://other.test/x')</script>", "Content Security Policy"),
        ("<img src='http://127.0.0.1:10/x' alt=x>", "request to another origin"),
    ],
)
def test_a_fault_of_a_page_is_found(chromium: Browser, body: str, fault: str) -> None:
    found = faults(chromium, body)
    assert any(fault in one for one in found), found


def test_a_clean_page_has_no_fault(chromium: Browser) -> None:
    assert faults(chromium, "<script>console.log('all is well')</script>") == []


def test_an_expected_error_is_no_fault_and_others_are(chromium: Browser) -> None:
    body = "<script>console.error('the one'); console.error('the other')</script>"
    (only,) = faults(chromium, body, expected="the one")
    assert "the other" in only


def test_a_fault_fails_the_test_of_the_page(chromium: Browser) -> None:
    with pytest.raises(AssertionError, match="not clean"), watched_page(chromium, ORIGIN) as watched:
        _show(watched, "<script>console.error('a row is missing')</script>")


def test_findings_name_the_rule_and_the_element(chromium: Browser) -> None:
    with watched_page(chromium, ORIGIN) as watched:
        _show(watched, "<img src='data:,'><p style='color: #999; background: #aaa'>pale</p>")
        found = serious_findings(watched.page)
    assert [one.split(" ")[0] for one in sorted(found)] == ["color-contrast", "image-alt"]
    assert "pale" in sorted(found)[0]


def test_a_picture_differs_by_a_moved_line_and_not_by_its_shade() -> None:
    rng = np.random.default_rng(19)
    picture = np.full((160, 240, 3), 250, np.uint8)
    picture[40:56, 20:220] = 20
    shade = np.clip(picture.astype(int) + rng.integers(-12, 13, picture.shape), 0, 255).astype(np.uint8)
    assert differing_share(picture, shade) == 0
    assert differing_share(picture, np.roll(picture, 16, axis=0)) > 0.1
    assert differing_share(picture, picture[:-8]) == 1


def _show(watched: WatchedPage, body: str) -> None:
    watched.page.route("**/*", lambda route: route.fulfill(body=WHOLE.format(body), content_type="text/html"))
    watched.page.goto("/")
