"""Fixtures of the tests of pages: one process with samples for all files, one browser and one page for a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support.browser import chromium as browsers
from support.browser.seeded import ROLE_FLAGS, Seeded, seeded
from support.browser.watched_page import WatchedPage, watched_page
from support.servers.processes import Role


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    scratch = tmp_path_factory.mktemp("ui")
    with Role(scratch, "standalone", "--data-dir", str(scratch / "data"), *ROLE_FLAGS) as role:
        yield seeded(role)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def kept(chromium: Browser, served: Seeded) -> Iterator[WatchedPage]:
    """One page of the process: in a fresh one the browser compiles all scripts again."""
    with watched_page(chromium, served.origin) as page:
        yield page


@pytest.fixture
def watched(kept: WatchedPage) -> Iterator[WatchedPage]:
    """A page of the process, checked after the test."""
    kept.begin_anew()
    yield kept
    kept.check()
