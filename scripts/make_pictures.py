"""Draws the pictures of README.md and docs/ into docs/images: pages of a process with recorded metrics of a host.

Run it by `make pictures`. It takes some minutes: a part of the samples must have left memory, so that history has it.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from support.browser.chromium import chromium
from tsdb.cli.demo.standalone import Agent, Standalone, run_tsdb

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
RECORDED = ROOT / "tests" / "data" / "node_5s.parquet"
COLOURS = 128  # Colours of a picture. A palette takes a quarter of the bytes.
WITHIN_S = 240.0
PANELS: tuple[tuple[str, dict[str, object]], ...] = (
    ("sum by (mode) (rate(node_cpu_seconds_total[1m]))", {"stack": 1}),
    ("node_memory_MemAvailable_bytes", {"unit": "bytes"}),
)
RULES = """
groups:
- name: cpu
  interval: 5s
  rules:
  - {record: "mode:node_cpu_seconds:rate1m", expr: "sum by (mode) (rate(node_cpu_seconds_total[1m]))"}
  - {alert: CpuBusy, expr: 'sum without (mode) (mode:node_cpu_seconds:rate1m{mode!="idle"}) > 0.02', for: 15s}
- name: memory
  interval: 15s
  rules:
  - {alert: MemoryLow, expr: node_memory_MemAvailable_bytes < 1e9, for: 1m, labels: {severity: page}}
"""


def main() -> None:
    """Make all pictures anew."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Standalone(Path(folder)) as server:
        # The page shows the path as it is given, and a reader has no use for that of a temporary folder.
        os.chdir(folder)
        Path("rules.yaml").write_text(RULES)
        os.environ |= {"TSDB_RULES": "rules.yaml", "TSDB_RULES_GRACE_S": "2"}
        server.start(print)
        run_tsdb("write", str(RECORDED), "--address", server.grpc, "--shift-to-now")
        with Agent(server.grpc, Path(folder)), chromium() as browser:
            explorer = _explorer_url(server.http)
            _wait_for(browser, explorer, ".evidence", "history before")
            for name, dark in (("explorer", False), ("explorer-dark", True)):
                _draw(browser, explorer, name, height=900, dark=dark)
            for page in ("partitions", "cardinality", "pipeline"):
                _draw(browser, f"http://{server.http}/ui/{page}", page, height=620)
            rules_url = f"http://{server.http}/ui/rules"
            _wait_for(browser, rules_url, "main", "1 firing")
            _draw(browser, rules_url, "rules", height=740)


def _explorer_url(http: str) -> str:
    parameters: dict[str, object] = {"v": 1, "range": "10m"}
    for number, (query, options) in enumerate(PANELS):
        parameters |= {f"p{number}.q": query, **{f"p{number}.{name}": value for name, value in options.items()}}
    return f"http://{http}/?{urlencode(parameters)}"


def _wait_for(browser: Browser, url: str, selector: str, text: str) -> None:
    """Wait until a page has a text: a part of the range lies in history alone, or an alert fires."""
    give_up_at = time.monotonic() + WITHIN_S
    page = browser.new_page()
    while True:
        _open(page, url)
        if text in page.locator(selector).first.inner_text():
            page.close()
            return
        if time.monotonic() > give_up_at:
            raise SystemExit(f"{url} has no {text!r} after {WITHIN_S:g} s")
        time.sleep(5.0)  # Time between two looks at a process that works for a minute or two.


def _draw(browser: Browser, url: str, name: str, *, height: int, dark: bool = False) -> None:
    page = browser.new_page(
        viewport={"width": 1100, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
    )
    _open(page, url)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLOURS)
    path = IMAGES / f"{name}.png"
    picture.save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")
    page.close()


def _open(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator("main")).to_be_visible()
    expect(page.locator(".panel[aria-busy]")).to_have_count(0, timeout=30_000)


if __name__ == "__main__":
    main()
