"""Figure: the empty graph as a Bokeh document. The script of a page fills it with data, again at each refresh.

The document depends on a few options alone, so a browser asks for it once for each of them.
"""

from __future__ import annotations

import json
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tsdb.api.prometheus.errors import BadParameter
from tsdb.ui.files import not_installed
from tsdb.ui.link import AXES, end_of_axis
from tsdb.ui.pages.page import PageCall

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

THEMES = ("light", "dark")
_TEXT = {"light": "#4a5160", "dark": "#aeb6c4"}
_GRID = {"light": "#e4e7ee", "dark": "#2b313d"}
_HISTORY = {"light": "#8a6d3b", "dark": "#d9b26f"}
_ALERT = {"light": "#b45309", "dark": "#fbbf24"}
_EXEMPLAR = {"light": "#7c3aed", "dark": "#c4b5fd"}
_HOLE = {"light": "#b3261e", "dark": "#ff8a80"}

_one_at_a_time = threading.Lock()  # Bokeh's models have a default document for all threads.


def figure(asked: PageCall) -> bytes:
    """Answers `/ui/figure`: Bokeh's JSON item. Raises BadParameter, Unavailable (ui_not_installed)."""
    form = asked.call.form
    axis = _choice(form.get("axis"), "axis", AXES)
    low, high = (_end(form.get(name), name, axis) for name in ("low", "high"))
    if low is not None and high is not None and low >= high:
        raise BadParameter("high", "the axis ends before it begins")
    return _item(_choice(form.get("theme"), "theme", THEMES), axis, low, high)


def _end(text: str, name: str, axis: str) -> float | None:
    """An end of the axis of values; None for one that fits the values."""
    if not text:
        return None
    try:
        found = float(end_of_axis(text))
    except ValueError:
        raise BadParameter(name, f"{text[:40]!r} is no number, such as 0 or 1e6") from None
    if axis == "log" and found <= 0:
        raise BadParameter(name, "a log axis has no place for 0 and less")
    return found


def _choice(text: str, name: str, choices: tuple[str, ...]) -> str:
    if text and text not in choices:
        raise BadParameter(name, f"{text!r} is none of {', '.join(filter(None, choices))}")
    return text or choices[0]


@lru_cache(maxsize=64)
def _item(theme: str, axis: str, low: float | None, high: float | None) -> bytes:
    try:
        from bokeh.embed import json_item
    except ImportError as error:
        raise not_installed() from error
    with _one_at_a_time:
        item: Any = json_item(_figure(theme, axis, low, high))
    return json.dumps(item).encode()


def _figure(theme: str, axis: str, low: float | None, high: float | None) -> Figure:
    from bokeh.models import BasicTickFormatter, BoxZoomTool, ColumnDataSource, CrosshairTool, Range1d
    from bokeh.models.annotations import Span
    from bokeh.plotting import figure as new_figure

    plot = new_figure(
        name="graph",
        height=300,
        sizing_mode="stretch_width",
        x_axis_type="datetime",
        y_axis_type="log" if axis == "log" else "linear",
        x_range=Range1d(start=0, end=1),
        tools=[],
        toolbar_location=None,
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_alpha=0,
        min_border_right=12,
        lod_threshold=None,
    )
    zoom = BoxZoomTool(dimensions="width")
    guide = Span(dimension="height", line_color=_TEXT[theme], line_dash="dotted", line_width=1)
    plot.add_tools(zoom, CrosshairTool(overlay=guide))
    plot.toolbar.active_drag = zoom
    for one in (*plot.xaxis, *plot.yaxis):
        one.update(
            axis_label_text_color=_TEXT[theme],
            major_label_text_color=_TEXT[theme],
            major_label_text_font_size="12px",
            axis_line_color=_GRID[theme],
            major_tick_line_color=_GRID[theme],
            minor_tick_line_color=None,
        )
    plot.grid.grid_line_color = _GRID[theme]
    plot.xaxis.update(name="time_axis", axis_label="UTC", axis_label_standoff=2)
    # The page writes the numbers; on both kinds of axis the formatter is one that it can replace.
    plot.yaxis.update(name="number_axis", formatter=BasicTickFormatter())
    plot.y_range.update(range_padding=0.08, only_visible=False)
    if low is not None:
        plot.y_range.update(start=low)
    if high is not None:
        plot.y_range.update(end=high)

    cells = ColumnDataSource({"left": [], "right": [], "bottom": [], "top": [], "color": [], "alpha": []}, name="cells")
    plot.quad("left", "right", "top", "bottom", source=cells, fill_color="color", fill_alpha="alpha", line_alpha=0)
    areas = ColumnDataSource({"xs": [], "ys": [], "color": []}, name="areas")
    plot.patches("xs", "ys", source=areas, fill_color="color", fill_alpha=0.3, line_alpha=0)
    history = ColumnDataSource({"left": [], "right": []}, name="history")
    plot.vstrip("left", "right", source=history, fill_color=_HISTORY[theme], fill_alpha=0.08, line_alpha=0)
    alerts = ColumnDataSource({"left": [], "right": []}, name="alerts")
    plot.vstrip(
        "left",
        "right",
        source=alerts,
        fill_color=_ALERT[theme],
        fill_alpha=0.16,
        line_color=_ALERT[theme],
        line_width=1,
    )
    seams = ColumnDataSource({"x": []}, name="seams")
    plot.vspan("x", source=seams, line_color=_HISTORY[theme], line_width=2, line_dash="dashed")
    holes = ColumnDataSource({"left": [], "right": []}, name="holes")
    plot.vstrip(
        "left",
        "right",
        source=holes,
        fill_color=_HOLE[theme],
        fill_alpha=0.15,
        hatch_pattern="right_diagonal_line",
        hatch_color=_HOLE[theme],
        hatch_alpha=0.5,
        line_alpha=0,
    )
    lines = ColumnDataSource({"xs": [], "ys": [], "color": [], "dash": [], "width": [], "alpha": []}, name="lines")
    plot.multi_line(
        "xs", "ys", source=lines, line_color="color", line_dash="dash", line_width="width", line_alpha="alpha"
    )
    points = ColumnDataSource({"x": [], "y": [], "color": [], "marker": [], "alpha": []}, name="points")
    plot.scatter(
        "x",
        "y",
        source=points,
        marker="marker",
        size=7,
        color="color",
        fill_alpha=0,
        line_width=1.5,
        line_alpha="alpha",
    )
    exemplars = ColumnDataSource({"x": [], "y": []}, name="exemplars")
    plot.scatter(
        "x",
        "y",
        source=exemplars,
        marker="diamond",
        size=10,
        fill_color=_EXEMPLAR[theme],
        fill_alpha=0.8,
        line_color=_TEXT[theme],
        line_width=0.5,
    )
    return plot
