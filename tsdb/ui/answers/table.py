"""Table: shows the value of an expression at the end of the range. Samples: shows the samples of a selector
unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.api.prometheus.pages.query import Evaluated, instant_result
from tsdb.promql.evaluate.native.histograms import HistogramCells
from tsdb.promql.evaluate.native.shown import shown_histograms
from tsdb.promql.evaluate.query import EvaluationResult
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text
from tsdb.promql.syntax.numbers import shown_f
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown
from tsdb.promql.syntax.tree import DurationNumber, MatrixSelector, Paren, VectorSelector
from tsdb.selector.tokens import QueryError
from tsdb.ui.answers.evidence import evidence
from tsdb.ui.answers.graph import labels_of, steps_asked, texts, times_of
from tsdb.ui.answers.variables import QueryText, replaced
from tsdb.ui.pages.page import PageCall


def table(asked: PageCall) -> bytes:
    """Answers `/ui/table`. Raises the errors of `query`."""
    start_ms, end_ms = times_of(asked.call)
    query = query_of(asked.call, start_ms, end_ms)
    evaluated = instant_result(asked.call, query.text, end_ms, finds_newest=True)
    return _answer(asked, evaluated, query, start_ms, end_ms)


def samples(asked: PageCall) -> bytes:
    """Answers `/ui/samples`: the newest samples of a selector in (start, end]. Raises the errors of `query`, and
    BadParameter for an expression that is not a selector."""
    call = asked.call
    start_ms, end_ms = times_of(call)
    query = query_of(call, start_ms, end_ms)
    try:
        node = parse(query.text, call.options.query.features)
    except QueryError as error:
        raise BadParameter("query", error.message) from error
    while isinstance(node, Paren):
        node = node.inner
    if isinstance(node, MatrixSelector):
        node = node.selector
    if not isinstance(node, VectorSelector):
        raise BadParameter("query", 'raw samples need a selector, such as name{label="value"}; this is an expression')
    length = DurationNumber((end_ms - start_ms) / 1000, True, node.span)
    evaluated = instant_result(call, shown(MatrixSelector(node, length, node.span)), end_ms, finds_newest=True)
    return _answer(asked, evaluated, query, start_ms, end_ms)


def query_of(call: ApiCall, start_ms: int, end_ms: int) -> QueryText:
    """The expression of a request, with the values that its variables have in a graph of the range. Raises
    BadParameter."""
    return replaced(call.form.get("query"), steps_asked(call, start_ms, end_ms).step_ms, end_ms - start_ms)


def _answer(asked: PageCall, evaluated: Evaluated, query: QueryText, start_ms: int, end_ms: int) -> bytes:
    found = evaluated.found
    answer = {
        "status": "success",
        "start_ms": start_ms,
        "end_ms": end_ms,
        **_rows(found, asked.options.rows_max),
        "warnings": texts(found.warnings, "warning"),
        "infos": [*query.notes, *texts(found.infos, "info")],
        "evidence": evidence(asked, evaluated, start_ms, end_ms),
    }
    return orjson.dumps(answer)


def _rows(found: EvaluationResult, rows_max: int) -> dict[str, Any]:
    """kind: vector, samples, scalar or text. rows: [index of the series, time, value as text]; values are not
    rounded."""
    value = found.value
    at_ms = int(found.times_ms[0])
    if isinstance(value, Text):
        return _part("text", [{}], [(0, at_ms, valid_text(value.value))], 1, 1)
    if isinstance(value, Scalar):
        return _part("scalar", [{}], [(0, at_ms, shown_f(float(value.values[0])))], 1, 1)
    if isinstance(value, Block):
        block = value.take(np.arange(min(len(value), rows_max)))
        of = None if block.native is None else block.native.of[:, 0]
        rows = [(row, at_ms, text) for row, text in enumerate(_texts(block.values[:, 0], block.native, of))]
        return _part("vector", labels_of(block.labels), rows, len(value), len(value))
    return _of_samples(value, rows_max)


def _of_samples(value: Samples, rows_max: int) -> dict[str, Any]:
    """The newest samples first; samples of one time come in the order of the series."""
    of_row = np.repeat(np.arange(len(value.labels)), np.diff(value.starts))
    newest = np.lexsort((of_row, -value.ts_ms))[:rows_max]
    used, places = np.unique(of_row[newest], return_inverse=True)
    texts_of = _texts(value.values[newest], value.native, None if value.native is None else value.native.of[newest])
    rows = list(zip(places.reshape(-1).tolist(), value.ts_ms[newest].tolist(), texts_of, strict=True))
    return _part("samples", labels_of(value.labels.take(used)), rows, len(value.ts_ms), len(value.labels))


def _texts(values: NDArray[np.float64], native: HistogramCells | None, of: NDArray[np.int64] | None) -> list[str]:
    """The text of each value; of a native histogram that of Prometheus: `{count:3, sum:5, (1,2]:3}`."""
    found = [*map(shown_f, values.tolist())]
    if native is None or of is None:
        return found
    where = np.flatnonzero(of >= 0)
    for place, text in zip(where.tolist(), shown_histograms(native.histograms.take(of[where])), strict=True):
        found[place] = text
    return found


def _part(
    kind: str, series: list[dict[str, str]], rows: list[tuple[int, int, str]], rows_total: int, series_total: int
) -> dict[str, Any]:
    return {"kind": kind, "series": series, "rows": rows, "rows_total": rows_total, "series_total": series_total}
