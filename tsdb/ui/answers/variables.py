"""Variables: replaces `$__interval`, `$__rate_interval` and `$__range` as Grafana does, so that an expression of a
dashboard runs here as it is.

A value takes the columns of its variable, with blanks, where it fits: the places of errors stay those of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.pages.syntax import formatted
from tsdb.promql.syntax.literals import shown_duration
from tsdb.promql.syntax.parser import parse
from tsdb.selector.tokens import QueryError
from tsdb.ui.pages.page import PageCall

SCRAPE_MS = 15_000  # The scrape interval that Grafana takes where a data source names none.
NAMES = ("__rate_interval_ms", "__rate_interval", "__interval_ms", "__interval", "__range_ms", "__range_s", "__range")
_NAME = "|".join(NAMES)
# Strings and comments come first: they stay as they are.
_PART = re.compile(
    r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`|#[^\n]*"
    rf"|\$\{{(?P<braced>{_NAME})(?::[a-z]+)?\}}|\$(?P<plain>{_NAME})\b"
)
_FIRST_S = 7_654_321  # Values that stand for the variables while a text is formatted; nobody writes them.


@dataclass(frozen=True, slots=True)
class QueryText:
    """text: the expression with values. notes: a sentence that names the values; none for an expression without
    variables."""

    text: str
    notes: tuple[str, ...]


def replaced(text: str, step_ms: int, range_ms: int) -> QueryText:
    """The expression with the values of its variables. step_ms: the step of the graph. range_ms: its length."""
    values = _values(step_ms, range_ms)
    used: dict[str, str] = {}

    def take(name: str, width: int) -> str:
        used[name] = values[name]
        return values[name].ljust(width)

    found = _each(text, take)
    if not used:
        return QueryText(text, ())
    named = ", ".join(f"${name} is {value}" for name, value in used.items())
    scrapes = shown_duration(SCRAPE_MS)
    why = f"; it fits samples every {scrapes}" if any("rate" in name for name in used) else ""
    return QueryText(found, (f"As in Grafana, {named}{why}.",))


def formatting(asked: PageCall) -> bytes:
    """Answers `/ui/format`: the `text` of an expression as Prometheus prints it, long ones on several lines. Raises
    BadParameter."""
    call = asked.call
    query = call.form.get("query")
    if any(one.group().startswith("#") for one in _PART.finditer(query)):
        raise BadParameter("query", "formatting would lose its comments: remove them first")
    stand_ins: dict[str, str] = {}

    def take(name: str, _width: int) -> str:
        number = _FIRST_S + NAMES.index(name)
        stand_in = str(number) if name.endswith(("_ms", "_s")) else shown_duration(1000 * number)
        stand_ins[stand_in] = f"${name}"
        return stand_in

    try:
        text = formatted(parse(_each(query, take), call.options.query.features))
    except QueryError as error:
        raise BadParameter("query", error.message) from error
    for value, name in stand_ins.items():
        text = text.replace(value, name)
    return orjson.dumps({"status": "success", "text": text})


def _each(text: str, take: Callable[[str, int], str]) -> str:
    """The text with each variable replaced by `take`, which gets its name and its width."""

    def value(found: re.Match[str]) -> str:
        name = found["braced"] or found["plain"]
        return take(name, len(found.group())) if name else found.group()

    return _PART.sub(value, text)


def _values(step_ms: int, range_ms: int) -> dict[str, str]:
    rate_ms = max(step_ms + SCRAPE_MS, 4 * SCRAPE_MS)
    range_s = max(1, round(range_ms / 1000))
    return {
        "__interval": shown_duration(step_ms),
        "__interval_ms": str(step_ms),
        "__rate_interval": shown_duration(rate_ms),
        "__rate_interval_ms": str(rate_ms),
        "__range": f"{range_s}s",
        "__range_s": str(range_s),
        "__range_ms": str(1000 * range_s),
    }
