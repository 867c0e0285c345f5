"""Headless Chromium of the system, driven by Playwright: one browser for a test file, a fresh profile for each page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

# Names resolve to nothing, so a page can reach this machine alone. Text is drawn in shades of grey without hints and
# colours are sRGB on each machine: kept pictures depend on it.
ARGUMENTS = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--font-render-hinting=none",
    "--disable-lcd-text",
    "--force-color-profile=srgb",
    "--disable-gpu",
)


def program() -> str:
    """The path of Chromium. Fails where it is not installed."""
    found = shutil.which("chromium")
    assert found is not None, "no chromium: `make programs` installs it"
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser. Within the block its thread has a running event loop, so `asyncio.run` fails there."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
