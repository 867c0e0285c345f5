"""Answers lookups of series and labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.answer import Result, json_of, plain
from tsdb.api.prometheus.call import ApiCall, QueryStorage
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.pages.query import TRUNCATED
from tsdb.api.prometheus.parameters import LookupRange, selectors
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels
from tsdb.model.selector import Matcher
from tsdb.reader.read_call import texts_bytes
from tsdb.selector.selectors import is_utf8

SERIES_A_PIECE = 1000
SERIES_COPIES = 3  # Copies of the labels: canonical, and in the pieces that are being sent.

_ESCAPED = re.compile(r"_(_|[0-9a-fA-F]{1,6}_)")

Lookup = Callable[[QueryStorage, Sequence[Matcher], LookupRange], Sequence[str]]


def series(call: ApiCall) -> Result:
    """Answers `/api/v1/series`: labels of series."""
    if call.form.problem:
        raise InvalidRequest(f"error parsing form values: {call.form.problem}", reason="bad_parameter")
    if not call.form.all("match[]"):
        raise InvalidRequest("no match[] parameter provided", reason="bad_selector")
    limit, times = parameters.limit(call.form), parameters.lookup_range(call.form)
    try:
        wanted = selectors(call.form)
    except InvalidRequest as error:
        raise BadParameter("match[]", error.message) from error
    found: dict[bytes, None] = {}
    warnings: list[str] = []
    call.running.text = " ".join(call.form.all("match[]"))
    if not times.is_empty:
        with call.storage() as storage:
            for matchers in wanted:
                call.running.check()
                found.update(dict.fromkeys(storage.series(matchers, times.start_ms, times.end_ms)))
            call.running.check()
            warnings += storage.warnings
            call.hold(SERIES_COPIES * sum(map(len, found)))
    rows = sorted(found)
    if limit and len(rows) > limit:
        rows = rows[:limit]
        warnings.append(TRUNCATED)
    return Result(_series_json(rows), warnings)


def label_names(call: ApiCall) -> Result:
    """Answers `/api/v1/labels`: names, sorted."""
    return _texts(call, lambda storage, matchers, times: storage.label_names(matchers, times.start_ms, times.end_ms))


def label_values(call: ApiCall) -> Result:
    """Answers `/api/v1/label/NAME/values`: values, sorted."""
    name = unescaped_name(call.variable)
    if not name or not is_utf8(name):
        raise InvalidRequest(f"invalid label name: {parameters.quoted(name)}", reason="bad_label")
    return _texts(
        call, lambda storage, matchers, times: storage.label_values(name, matchers, times.start_ms, times.end_ms)
    )


def unescaped_name(name: str) -> str:
    """A label name of a path. A name with the prefix U__ is escaped: `__` is an underscore, `_2e_` a character by its
    code.

    A text without this form is the name itself, as in Prometheus.
    """
    if not name.startswith("U__"):
        return name
    try:
        return _ESCAPED.sub(lambda match: "_" if match[1] == "_" else chr(int(match[1][:-1], 16)), name[3:])
    except (ValueError, OverflowError):
        return name


def _texts(call: ApiCall, lookup: Lookup) -> Result:
    limit, times = parameters.limit(call.form), parameters.lookup_range(call.form)
    wanted: Sequence[Sequence[Matcher]] = selectors(call.form) or [()]
    found: set[str] = set()
    warnings: list[str] = []
    call.running.text = " ".join(call.form.all("match[]"))
    if not times.is_empty:
        with call.storage() as storage:
            for matchers in wanted:
                call.running.check()
                found.update(lookup(storage, matchers, times))
            call.running.check()
            warnings += storage.warnings
            call.hold(texts_bytes(found))
    texts = sorted(found)
    if limit and len(texts) > limit:
        texts = texts[:limit]
        warnings.append(TRUNCATED)
    return plain(texts, warnings)


def _series_json(rows: Sequence[bytes]) -> Iterator[bytes]:
    yield b"["
    for start in range(0, len(rows), SERIES_A_PIECE):
        pairs = [dict(parse_labels(labels)) for labels in rows[start : start + SERIES_A_PIECE]]
        yield (b"," if start else b"") + json_of(pairs)[1:-1]
    yield b"]"
