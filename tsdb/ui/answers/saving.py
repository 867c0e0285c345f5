"""Saving: the data of a panel as a file, CSV or JSON, with every step of every series. A graph draws fewer points."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import numpy as np
import orjson

from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.pages.query import instant_result, range_result
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import time_text
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.numbers import shown_f
from tsdb.selector.selectors import METRIC_NAME
from tsdb.ui.answers.graph import labels_of, steps_asked, times_of
from tsdb.ui.answers.table import query_of
from tsdb.ui.pages.page import PageCall

VALUES_MAX = 200_000
FORMS = ("csv", "json")
_Row = tuple[int, int, float]  # Index of the series, time, value.


def saving(asked: PageCall) -> bytes:
    """Answers `/ui/save`: the `text` of a file; `as` is one of FORMS, `view` graph or table. Raises BadParameter,
    InvalidRequest (answer_too_large), and the errors of `query_range`."""
    call = asked.call
    form = call.form.get("as")
    if form not in FORMS:
        raise BadParameter("as", f"{form[:40]!r} is none of {', '.join(FORMS)}")
    start_ms, end_ms = times_of(call)
    query = query_of(call, start_ms, end_ms).text
    view = call.form.get("view")
    if view not in ("graph", "table"):
        raise BadParameter("view", "a file has a graph or a table; save raw samples with tsdb query --raw --output csv")
    if view == "table":
        result, first_ms, step_ms = instant_result(call, query, end_ms).found, end_ms, 1
    else:
        steps = steps_asked(call, start_ms, end_ms)
        result, first_ms, step_ms = range_result(call, query, steps).found, steps.start_ms, steps.step_ms
    result.check_floats("a file")
    found = result.value
    if not isinstance(found, Block):
        raise BadParameter("query", "a file needs series; this expression has none")
    values = int(found.present.sum())
    if values > VALUES_MAX:
        raise InvalidRequest(
            f"the file would have {values:,} values; the limit is {VALUES_MAX:,}: ask for fewer series or a longer "
            "step, or save it with tsdb query --output csv",
            reason="answer_too_large",
        )
    labels = labels_of(found.labels)
    rows = _rows(found, first_ms, step_ms)
    text = as_csv(labels, rows) if form == "csv" else as_json(labels, rows)
    return orjson.dumps({"status": "success", "text": text, "values": values})


def _rows(block: Block, first_ms: int, step_ms: int) -> Iterator[_Row]:
    series, steps = np.nonzero(block.present)
    numbers = block.values[series, steps]
    return zip(series.tolist(), (first_ms + steps * step_ms).tolist(), numbers.tolist(), strict=True)


def as_csv(labels: Sequence[dict[str, str]], rows: Iterator[_Row]) -> str:
    """A line for each value: time, a column for each label, value. A text that a spreadsheet would run is quoted."""
    names = sorted({name for one in labels for name in one}, key=lambda name: (name != METRIC_NAME, name))
    cells = [[_plain(one.get(name, "")) for name in names] for one in labels]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["time", *map(_plain, names), "value"])
    writer.writerows([time_text(ts_ms), *cells[index], shown_f(number)] for index, ts_ms, number in rows)
    return out.getvalue()


def _plain(text: str) -> str:
    """The text, with an apostrophe before a sign that makes a formula of it."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_json(labels: Sequence[dict[str, str]], rows: Iterator[_Row]) -> str:
    """A list of series: `metric` has the labels, `values` pairs of milliseconds and text, as in the API."""
    values: list[list[tuple[int, str]]] = [[] for _ in labels]
    for index, ts_ms, number in rows:
        values[index].append((ts_ms, shown_f(number)))
    found = [{"metric": one, "values": pairs} for one, pairs in zip(labels, values, strict=True)]
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
