"""Completion: names and values that fit the cursor, of the series in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.promql.syntax.functions import AGGREGATIONS, EXPERIMENTAL_AGGREGATIONS, FUNCTIONS
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import PLAIN_LABEL
from tsdb.ui.answers.cursor_place import CompletionKind, CursorPlace, cursor_place
from tsdb.ui.link import QUERY_CHARS_MAX
from tsdb.ui.pages.page import PageCall

ITEMS_MAX = 60
SCANNED_MAX = 200_000  # Names or values that are compared for one request; the others are left out.
_DURATIONS = ("30s", "1m", "5m", "10m", "15m", "30m", "1h", "6h", "1d", "7d")
_KEYWORDS = ("by", "without", "offset", "and", "or", "unless", "on", "ignoring", "group_left", "group_right", "bool")
_PLAIN_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class Item:
    """One completion. text: what the list shows. insert: replaces the prefix. kind: kind of the item, for people.
    detail: "" without one."""

    text: str
    insert: str
    kind: str
    detail: str = ""


def completion(asked: PageCall) -> bytes:
    """Answers `/ui/complete`: items for the text `before` the cursor, the best first. Raises BadParameter, and as a
    lookup of labels."""
    before = asked.call.form.get("before")
    if len(before) > QUERY_CHARS_MAX:
        raise BadParameter("before", f"it has {len(before)} characters; the limit is {QUERY_CHARS_MAX}")
    place = cursor_place(before)
    items = best(place.prefix, _items(asked.call, place))
    answer = {
        "status": "success",
        "prefix": valid_text(place.prefix),
        "items": [
            {"text": valid_text(one.text), "insert": valid_text(one.insert), "kind": one.kind, "detail": one.detail}
            for one in items
        ],
    }
    return orjson.dumps(answer)


def best(prefix: str, items: Iterable[Item]) -> list[Item]:
    """Items that begin with the prefix, then items that contain it; case does not count. A text that is typed
    completely needs no completion."""
    wanted = prefix.lower()
    starting: list[Item] = []
    inside: list[Item] = []
    for item in items:
        at = item.text.lower().find(wanted)
        if at == 0:
            starting.append(item)
        elif at > 0:
            inside.append(item)
        if len(starting) >= ITEMS_MAX:
            break
    found = [*starting, *inside][:ITEMS_MAX]
    return [] if len(found) == 1 and found[0].insert == prefix else found


def _items(call: ApiCall, place: CursorPlace) -> Iterator[Item]:
    match place.wanted:
        case CompletionKind.EXPRESSION:
            yield from _functions(call, place.prefix)
            yield from _metrics(call)
        case CompletionKind.LABEL:
            for name in _found(call, place, None):
                if name != METRIC_NAME:
                    yield Item(name, name if PLAIN_LABEL.fullmatch(name) else _quoted(name), "label")
        case CompletionKind.VALUE:
            for value in _found(call, place, place.label):
                yield Item(value, _quoted(value)[1:-1], "value")
        case CompletionKind.DURATION:
            yield from (Item(one, one, "duration") for one in _DURATIONS)
        case CompletionKind.KEYWORD:
            yield from (Item(one, one, "keyword") for one in _KEYWORDS)


def _functions(call: ApiCall, prefix: str) -> Iterator[Item]:
    if not prefix:  # A list of metrics helps more than one of all functions.
        return
    experimental = call.options.query.features.experimental_functions
    for name in AGGREGATIONS:
        if experimental or name not in EXPERIMENTAL_AGGREGATIONS:
            yield Item(name, f"{name}(", "aggregation")
    for name, function in FUNCTIONS.items():
        if experimental or not function.experimental:
            yield Item(name, f"{name}(", "function", ", ".join(one.value for one in function.args))


def _metrics(call: ApiCall) -> Iterator[Item]:
    families = call.sources.families().by_name
    for name in _found(call, CursorPlace(CompletionKind.VALUE, ""), METRIC_NAME):
        family = families.get(name)
        insert = name if _PLAIN_METRIC.fullmatch(name) else "{" + _quoted(name) + "}"
        yield Item(name, insert, "metric" if family is None else family.kind or "metric", family.help if family else "")


def _found(call: ApiCall, place: CursorPlace, label: str | None) -> list[str]:
    """Names of labels, or values of one label, of the series in memory that fit the conditions."""
    with call.storage() as storage:
        if label is None:
            return list(storage.label_names(place.matchers, None, None))[:SCANNED_MAX]
        return list(storage.label_values(label, place.matchers, None, None))[:SCANNED_MAX]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
