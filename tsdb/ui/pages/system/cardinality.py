"""Cardinality: lists the metrics, labels, label pairs and sources with the most series in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from tsdb.api.prometheus.errors import BadParameter
from tsdb.index.cardinality import By
from tsdb.model.labels import parse_labels
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import quoted
from tsdb.ui.link import VERSION
from tsdb.ui.pages.page import PageCall
from tsdb.ui.pages.system.grid import Cell, Column, Grid, number, visible
from tsdb.v1 import reader_pb2

TOP = 20
NAMES = {By.METRIC: "metric", By.LABEL: "label", By.PAIR: "label pair", By.SOURCE: "source"}
# Ranges, with the texts that the page shows.
AGO = {"10m": "10 minutes", "1h": "1 hour", "6h": "6 hours", "1d": "1 day"}
# History has no numbers of label pairs, and there are too many to count each.
GROWING = (By.METRIC, By.LABEL, By.SOURCE)


def values(asked: PageCall) -> Mapping[str, Any]:
    """The variables of the template: `by` is the kind of group. Raises BadParameter."""
    by = by_of(asked)
    found = asked.call.sources.cardinality(asked.call.running, by, TOP)
    return {
        "series": number(found.series),
        "groups": number(found.groups_total) if found.HasField("groups_total") else "",
        "kinds": [(kind.value, name, kind is by) for kind, name in NAMES.items()],
        "ago": AGO.items() if by in GROWING else (),
        "by": by.value,
        "grids": [_grid(found, by)],
    }


def by_of(asked: PageCall) -> By:
    """The parameter `by`; the default is metric. Raises BadParameter."""
    text = asked.call.form.get("by") or By.METRIC.value
    try:
        return By(text)
    except ValueError:
        allowed = ", ".join(kind.value for kind in NAMES)
        raise BadParameter("by", f"{visible(text, 40)!r} is none of {allowed}") from None


def _grid(found: reader_pb2.CardinalityResponse, by: By) -> Grid:
    columns = [Column(NAMES[by]), Column("series", is_number=True), Column("of all series")]
    if by is By.LABEL:
        columns.insert(1, Column("values", "Different values of the label.", is_number=True))
    rows = [_row(group, by, found.series) for group in found.groups]
    return Grid(f"The largest, by {NAMES[by]}", columns, rows, "There are no series in memory.")


def _row(group: reader_pb2.CardinalityGroup, by: By, total: int) -> Sequence[Cell]:
    share = group.series / total if total else 0.0
    name, selector = (label_name(group), "") if by is By.LABEL else _name(group, by)
    link = f"/?{urlencode({'v': VERSION, 'p0.q': selector})}" if selector else ""
    cells = [
        Cell(visible(name), link=link, is_name=True),
        Cell(number(group.series)),
        Cell(f"{share:.1%}", share=share),
    ]
    if by is By.LABEL:
        cells.insert(1, Cell(number(group.values)))
    return cells


def label_name(group: reader_pb2.CardinalityGroup) -> str:
    """The name of a group by label."""
    return group.labels.decode(errors="replace")


def _name(group: reader_pb2.CardinalityGroup, by: By) -> tuple[str, str]:
    """The group as text, and an expression that counts its series; "" when a family stands for a source."""
    labels = parse_labels(group.labels)
    pairs = [f"{quoted(name)}={quoted(value)}" for name, value in labels]
    if by is By.METRIC:
        return ",".join(value for _, value in labels), f"count({{{','.join(pairs)}}})"
    is_family = by is By.SOURCE and any(name == METRIC_NAME for name, _ in labels)
    text = ", ".join(f"{name}={value}" for name, value in labels)
    return text, "" if is_family else f"count({{{','.join(pairs)}}})"
