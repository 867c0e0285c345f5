"""Fixtures of the tests of pages: one process with samples and one browser for all files, one page for a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.browser import chromium as browsers
from support.browser.seeded import ROLE_FLAGS, Seeded, seeded
from support.browser.watched_page import WatchedPage, watched_page
from support.servers.processes import Role
from support.shared_servers import GroupServers


@pytest.fixture(scope="module")
def served(group_servers: GroupServers) -> Seeded:
    return group_servers.server("served", _served)


@contextmanager
def _served(scratch: Path) -> Iterator[Seeded]:
    with Role(scratch, "standalone", "--data-dir", str(scratch / "data"), *ROLE_FLAGS) as role:
        yield seeded(role)


@pytest.fixture(scope="module")
def chromium(group_servers: GroupServers) -> Browser:
    return group_servers.server("chromium", lambda _: browsers.chromium())


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
