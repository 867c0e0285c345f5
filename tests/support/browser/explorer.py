"""Explorer: the page of expressions, as a test uses it."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, expect

from support.api.prometheus_server import NOW_MS, Samples
from tsdb.selector.selectors import METRIC_NAME

STEP_MS = 15_000
END_MS = NOW_MS // 60_000 * 60_000
START_MS = END_MS - 20 * 60_000
# The drawn lines of the newest figure.
DRAWN = "[...Bokeh.index.roots].at(-1).model.document.get_model_by_name('{}').data"


class Explorer:
    """The page of the explorer. Methods with `panel` act on its first panel, unless they get another number."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def open(self, *queries: str, **parameters: Any) -> None:
        """Open a link with these expressions and wait for their answers."""
        named = {f"p{number}.q": query for number, query in enumerate(queries)}
        self.page.goto("/?" + urlencode({"v": 1, **named, **parameters}))
        self.wait()

    def panel(self, number: int = 0) -> Locator:
        return self.page.locator("#panels > .panel").nth(number)

    def run(self, query: str, number: int = 0) -> None:
        """Replace the expression, run it and wait for its answer."""
        box = self.panel(number).locator("textarea")
        box.fill(query)
        box.press("Enter")
        self.wait()

    def wait(self) -> None:
        """Wait until no panel runs."""
        expect(self.page.locator("#panels > .panel").first).to_be_attached()
        expect(self.page.locator(".panel[aria-busy]")).to_have_count(0)

    def problem(self, number: int = 0) -> Locator:
        return self.panel(number).locator(".problem")

    def evidence(self, term: str, number: int = 0) -> str:
        """A field that the page shows beside the answer."""
        found = self.panel(number).locator(".evidence div").filter(has=self.page.locator(f"dt:text-is('{term}')"))
        return found.locator("dd").inner_text()

    def legend(self, number: int = 0) -> list[str]:
        return self.panel(number).locator("table.legend tbody th").all_inner_texts()

    def drawn(self, model: str) -> Any:
        """The data of a part of the newest figure: lines, points, areas, seams, history, holes."""
        return self.page.evaluate(
            f"Object.fromEntries(Object.entries({DRAWN.format(model)}).map(([name, one]) => "
            "[name, Array.from(one, (row) => typeof row === 'object' ? Array.from(row) : row)]))"
        )

    def ends(self) -> tuple[float, float]:
        """The ends of the axis of values of the newest graph, once it is drawn."""
        low, high = self.page.evaluate(
            "(async () => { const view = [...Bokeh.index.roots].filter((one) => one.model.type === 'Figure').at(-1);"
            " await view.ready; return [view.model.y_range.start, view.model.y_range.end] })()"
        )
        return low, high

    def point_at(self, x: float, y: float) -> None:
        """Move the pointer to a time and a value of the newest graph, once its axes have their ends."""
        place = self.page.wait_for_function(
            "([x, y]) => { const view = [...Bokeh.index.roots].filter((one) => one.model.type === 'Figure').at(-1);"
            " const box = view.el.getBoundingClientRect(); const frame = view.frame_view;"
            " const place = [box.x + frame.x_scale.compute(x), box.y + frame.y_scale.compute(y)];"
            " return place.every(Number.isFinite) ? place : null }",
            arg=[x, y],
        )
        self.page.mouse.move(*place.json_value())

    def parameters(self) -> dict[str, str]:
        """Parameters of the address."""
        found: dict[str, str] = self.page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
        return found


def add_waves(samples: Samples, **hosts: float) -> None:
    """A metric `load` of twenty minutes up to END_MS. hosts: by name the height of its wave."""
    times = range(START_MS, END_MS + 1, STEP_MS)
    for host, height in hosts.items():
        wave = [(ms, height + 5 * math.sin(at / 7 + height)) for at, ms in enumerate(times)]
        samples.add({METRIC_NAME: "load", "host": host}, wave)


def add_buckets(samples: Samples, *bounds: str) -> None:
    """A histogram `took_seconds` of twenty minutes up to END_MS, with these bounds from the lowest up."""
    times = range(START_MS - 300_000, END_MS + 1, STEP_MS)
    for place, bound in enumerate(bounds, 1):
        counts = [
            (ms, float(at * place + (3 * place) ** 2 * math.sin(at / 20) ** 2 * at)) for at, ms in enumerate(times)
        ]
        samples.add({METRIC_NAME: "took_seconds_bucket", "le": bound}, counts)
