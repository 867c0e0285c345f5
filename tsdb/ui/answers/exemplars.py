"""Reads the exemplars that a graph draws as dots, with the labels and a link of each.

They are those that `/api/v1/query_exemplars` has for the expression. A graph is drawn also when they cannot be read: a
note then names the cause.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import numpy as np

from tsdb.api.prometheus.json.rows import valid_text
from tsdb.api.prometheus.pages.exemplars import found_exemplars
from tsdb.model.errors import TsdbError
from tsdb.model.labels import parse_labels
from tsdb.promql.syntax.parser import parse
from tsdb.ui.pages.page import PageCall

DRAWN_MAX = 1_000  # The newest ones; more dots would cover each other.
_PLACE = re.compile(r"\{([^{}]*)\}")


def drawn_exemplars(asked: PageCall, query: str, start_ms: int, end_ms: int) -> tuple[list[dict[str, Any]], list[str]]:
    """(the newest exemplars by time, notes). A lag warns in the answer of the lines. Raises the error that ended the
    request."""
    call = asked.call
    root = parse(query, call.options.query.features)
    try:
        found, _ = found_exemplars(call, root, start_ms, end_ms)
    except TsdbError as error:
        call.running.check()
        return [], [f"exemplars are not shown: {error.message}"]
    dots: list[dict[str, Any]] = []
    for series, exemplars in found:
        for index in np.flatnonzero(np.isfinite(exemplars.values)).tolist():
            labels = _valid(parse_labels(exemplars.labels_of(index)))
            dots.append(
                {
                    "at": int(exemplars.ts_ms[index]),
                    "value": float(exemplars.values[index]),
                    "labels": labels,
                    "series": _valid(series),
                    "link": link_of(asked.options.exemplar_link, labels),
                }
            )
    dots.sort(key=lambda dot: dot["at"])
    return dots[-DRAWN_MAX:], []


def link_of(template: str, labels: dict[str, str]) -> str:
    """The template with the value of a label in each place `{NAME}`. Empty without a template, or when the exemplar
    lacks one of the labels."""
    names = _PLACE.findall(template)
    if not all(labels.get(name) for name in names):
        return ""
    return _PLACE.sub(lambda match: quote(labels[match[1]], safe=""), template)


def _valid(labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {valid_text(name): valid_text(value) for name, value in labels}
