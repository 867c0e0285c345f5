"""Answers `/api/v1/query_exemplars`: the exemplars of the series that the selectors of a query choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.answer import Representation, Result, json_of
from tsdb.api.prometheus.call import ApiCall, SeriesExemplars
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels
from tsdb.model.selector import Matcher
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import Expression, VectorSelector, post_order
from tsdb.selector.tokens import QueryError

COPIES = 3  # Copies of the exemplars: arrays, values of Python, and the pieces that are being sent.
NO_CONTENT = 204  # Status of Prometheus's answer to a query without a selector.

Labels = tuple[tuple[str, str], ...]


def exemplars(call: ApiCall) -> Result | Representation:
    """The series by their labels; of each its exemplars with a time from `start` to `end`, both included. With a
    selector twice, or several that choose a series, the series comes once."""
    times = parameters.lookup_range(call.form)
    if times.is_empty:
        raise InvalidRequest("end timestamp must not be before start timestamp", reason="bad_parameter")
    text = call.form.get("query")
    try:
        root = parse(text, call.options.query.features)
    except QueryError as error:
        raise InvalidRequest(error.message, reason="bad_parameter") from error
    if not _selectors(root):
        return Representation(iter(()), "", status=NO_CONTENT)
    call.running.text = text
    rows, warnings = found_exemplars(call, root, times.start_ms, times.end_ms)
    return Result(_json(rows), warnings)


def found_exemplars(
    call: ApiCall, root: Expression, start_ms: int | None, end_ms: int | None
) -> tuple[list[tuple[Labels, SeriesExemplars]], Sequence[str]]:
    """(the series by their labels with their exemplars, warnings). Both ends are included."""
    found: dict[Labels, SeriesExemplars] = {}
    size = 0
    with call.storage() as storage:
        for matchers in _selectors(root):
            call.running.check()
            for labels, of_series in storage.exemplars(matchers, start_ms, end_ms):
                size += COPIES * (len(labels) + of_series.nbytes)
                found.setdefault(parse_labels(labels), of_series)
            call.hold(size)
        warnings = storage.warnings
    return sorted(found.items(), key=lambda row: row[0]), warnings


def _selectors(root: Expression) -> dict[tuple[Matcher, ...], None]:
    """The matchers of each selector, once."""
    return dict.fromkeys(node.matchers for node in post_order(root) if isinstance(node, VectorSelector))


def _json(rows: Sequence[tuple[Labels, SeriesExemplars]]) -> Iterator[bytes]:
    yield b"["
    for number, (labels, found) in enumerate(rows):
        times, values = found.ts_ms.tolist(), found.values.tolist()
        shown = (
            b'{"labels":%b,"value":"%b","timestamp":%b}'
            % (json_of(dict(parse_labels(found.labels_of(index)))), _number(values[index]), _time(times[index]))
            for index in range(len(found))
        )
        head = b'{"seriesLabels":%b,"exemplars":[' % json_of(dict(labels))
        yield (b"," if number else b"") + head + b",".join(shown) + b"]}"
    yield b"]"


def _number(value: float) -> bytes:
    """A value as in vectors and matrices: the shortest decimal, with an exponent below 1e-6 and from 1e21 on."""
    if np.isnan(value):
        return b"NaN"
    if np.isinf(value):
        return b"+Inf" if value > 0 else b"-Inf"
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        return np.format_float_positional(value, trim="-").encode()
    return np.format_float_scientific(value, trim="-", exp_digits=2).encode()


def _time(ts_ms: int) -> bytes:
    """Seconds, with three digits behind the point when they are not whole."""
    seconds, ms = divmod(abs(ts_ms), 1000)
    return b"%b%d%b" % (b"-" if ts_ms < 0 else b"", seconds, b".%03d" % ms if ms else b"")
