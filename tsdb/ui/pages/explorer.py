"""The explorer: the page for expressions. It reads the link; the answers come from tsdb/ui/answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from tsdb.api.prometheus.json.rows import valid_text
from tsdb.ui.link import (
    PANELS_MAX,
    REFRESHES_S,
    SERIES_CHARS_MAX,
    SERIES_MAX,
    UNITS,
    VERSION,
    Panel,
    view_of,
)
from tsdb.ui.pages.page import PageCall

STANDALONE = "standalone"  # The role that takes samples at the address of its pages.
RANGES = ("1m", "5m", "15m", "30m", "1h", "3h", "6h", "12h", "1d", "2d", "7d", "30d", "90d", "1y")
_UNIT_NAMES = {
    "": "number",
    "bytes": "bytes",
    "seconds": "seconds",
    "percent": "percent (0-100)",
    "ratio": "percent of a ratio (0-1)",
    "per_second": "per second",
}


def values(asked: PageCall) -> Mapping[str, Any]:
    """The variables of the template: the view that the link describes, and why parts of it were not read."""
    view, problems = view_of(asked.call.form, asked.call.sources.clock.now_ms())
    bounds = {"panels_max": PANELS_MAX, "series_max": SERIES_MAX, "series_chars_max": SERIES_CHARS_MAX}
    state = {**asdict(view), "panels": [_panel(one) for one in view.panels], "version": VERSION, **bounds}
    state["title"] = valid_text(view.title)
    state["can_write"] = asked.sources.role == STANDALONE
    return {
        "state": orjson.dumps(state).decode(),
        "problems": [valid_text(one) for one in problems],
        "ranges": RANGES,
        "refreshes": [(one, "off" if not one else f"{one} s") for one in REFRESHES_S],
        "units": [(unit, _UNIT_NAMES[unit]) for unit in UNITS],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    series = {name: [valid_text(one) for one in found] for name, found in (("hide", panel.hide), ("only", panel.only))}
    texts = {name: valid_text(text) for name, text in asdict(panel).items() if isinstance(text, str)}
    return {**asdict(panel), **texts, **series}
