"""Graph: draws the lines of an expression over a range, with statistics of all their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tsdb.api.prometheus.json.envelope import shown_annotations
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.api.prometheus.pages.query import range_result
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import LabelSets
from tsdb.promql.syntax.numbers import shown_g
from tsdb.ui.answers.evidence import evidence
from tsdb.ui.answers.reduction import reduced, thinned
from tsdb.ui.answers.times import points_of, steps_of, times_of
from tsdb.ui.pages.page import PageCall

POINTS_MIN = 16  # Points of a line, however many lines there are.


def graph(asked: PageCall) -> bytes:
    """Answers `/ui/graph`. Raises the errors of `query_range`."""
    call = asked.call
    start_ms, end_ms = times_of(call)
    steps = steps_of(start_ms, end_ms, points_of(call))
    evaluated = range_result(call, call.form.get("query"), steps, finds_newest=True)
    block = evaluated.found.value
    assert isinstance(block, Block), "a range query has a vector"
    series_total = len(block)
    block = block.take(np.arange(min(series_total, asked.options.series_max)))
    points = max(POINTS_MIN, asked.options.points_max // max(1, len(block)))
    reduce = thinned if call.form.flag("stack") else reduced
    drawn = reduce(block.values, block.present, points)
    answer = {
        "status": "success",
        "start_ms": start_ms,
        "end_ms": end_ms,
        "first_ms": steps.start_ms,
        "step_ms": steps.step_ms,
        "series_total": series_total,
        "series": labels_of(block.labels),
        "is_reduced": drawn.at.shape[1] < block.steps,
        "at": np.ascontiguousarray(drawn.at) if drawn.at.shape[1] < block.steps else None,
        "values": np.ascontiguousarray(drawn.values),
        "statistics": _statistics(block.values, block.present),
        "warnings": texts(evaluated.found.warnings, "warning"),
        "infos": texts(evaluated.found.infos, "info"),
        "evidence": evidence(asked, evaluated, start_ms, end_ms),
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def labels_of(labels: LabelSets) -> list[dict[str, str]]:
    """The labels of each series. Text that is not UTF-8 is replaced."""
    rows = [labels.row(row) for row in range(len(labels))]
    return [{valid_text(name): valid_text(value) for name, value in row.items()} for row in rows]


def texts(annotations: tuple[str, ...], kind: str) -> list[str]:
    """Annotations as the API shows them."""
    return [valid_text(one) for one in shown_annotations(kind, annotations)]


def _statistics(values: NDArray[np.float64], present: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Last, lowest, highest and mean value of each series as text, over all steps that have a value."""
    return [_of_series(row[here]) for row, here in zip(values, present, strict=True)]


def _of_series(values: NDArray[np.float64]) -> dict[str, Any]:
    numbers = values[~np.isnan(values)]
    if not len(values):
        return {"last": "", "min": "", "max": "", "mean": ""}
    if not len(numbers):
        return {"last": "NaN", "min": "NaN", "max": "NaN", "mean": "NaN"}
    with np.errstate(all="ignore"):
        mean = float(numbers.mean())
    return {
        "last": shown_g(float(values[-1])),
        "min": shown_g(float(numbers.min())),
        "max": shown_g(float(numbers.max())),
        "mean": shown_g(mean),
    }
