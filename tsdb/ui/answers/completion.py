"""Completion: names and values that fit the cursor, of the series in memory.

CursorContext tells what may stand at the cursor of an expression that is still being written.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import orjson

from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.model.selector import MATCH_TYPES, Matcher, MatchType
from tsdb.promql.syntax.functions import FUNCTIONS
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import PLAIN_LABEL, QueryError, Token, TokenKind, tokens_of
from tsdb.ui.answers.functions import function_helps
from tsdb.ui.answers.variables import NAMES, replaced
from tsdb.ui.link import QUERY_CHARS_MAX
from tsdb.ui.pages.page import PageCall

ITEMS_MAX = 60
SCANNED_MAX = 200_000  # Names or values that are compared for one request; the others are left out.
_DURATIONS = ("30s", "1m", "5m", "10m", "15m", "30m", "1h", "6h", "1d", "7d")
_KEYWORDS = ("by", "without", "offset", "and", "or", "unless", "on", "ignoring", "group_left", "group_right", "bool")
_VARIABLE = re.compile(r"\$\w*\Z")
_PLAIN_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_OPEN, _CLOSED = frozenset("({["), frozenset(")}]")


@dataclass(frozen=True, slots=True)
class Item:
    """One completion. text: the text in the list. insert: replaces the prefix. kind: kind of the item, for people.
    signature: the arguments of a function. help: a sentence; "" where nothing is known.
    """

    text: str
    insert: str
    kind: str
    signature: str = ""
    help: str = ""


def completion(asked: PageCall) -> bytes:
    """Answers `/ui/complete`: items for the text `before` the cursor, the best first. Raises BadParameter, and as a
    lookup of labels."""
    before = asked.call.form.get("before")
    if len(before) > QUERY_CHARS_MAX:
        raise BadParameter("before", f"it has {len(before)} characters; the limit is {QUERY_CHARS_MAX}")
    place = _variable_place(before) or cursor_place(replaced(before, 1, 1).text)
    items = best(place.prefix, _items(asked.call, place))
    answer = {
        "status": "success",
        "prefix": valid_text(place.prefix),
        "more": len(items) > ITEMS_MAX,
        "items": [
            {
                "text": valid_text(one.text),
                "insert": valid_text(one.insert),
                "kind": one.kind,
                "signature": one.signature,
                "help": valid_text(one.help),
            }
            for one in items[:ITEMS_MAX]
        ],
    }
    return orjson.dumps(answer)


def best(prefix: str, items: Iterable[Item]) -> list[Item]:
    """Items that begin with the prefix, then items that contain it; case does not count. One more than ITEMS_MAX where
    there are more. A text that is typed completely needs no completion."""
    wanted = prefix.lower()
    starting: list[Item] = []
    inside: list[Item] = []
    for item in items:
        at = item.text.lower().find(wanted)
        if at == 0:
            starting.append(item)
        elif at > 0:
            inside.append(item)
        if len(starting) > ITEMS_MAX:
            break
    found = [*starting, *inside][: ITEMS_MAX + 1]
    return [] if len(found) == 1 and found[0].insert == prefix else found


def _items(call: ApiCall, place: CursorContext) -> Iterator[Item]:
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
        case CompletionKind.VARIABLE:
            yield from (Item(f"${one}", f"${one}", "variable") for one in sorted(NAMES))
        case CompletionKind.DURATION:
            yield from (Item(f"${one}", f"${one}", "variable") for one in ("__rate_interval", "__interval", "__range"))
            yield from (Item(one, one, "duration") for one in _DURATIONS)
        case CompletionKind.KEYWORD:
            yield from (Item(one, one, "keyword") for one in _KEYWORDS)


def _functions(call: ApiCall, prefix: str) -> Iterator[Item]:
    if not prefix:  # A list of metrics helps more than one of all functions.
        return
    for one in function_helps(experimental=call.options.query.features.experimental_functions):
        yield Item(one.name, f"{one.name}(", one.kind, one.signature, one.help)


def _metrics(call: ApiCall) -> Iterator[Item]:
    families = call.sources.families().by_name
    for name in _found(call, CursorContext(CompletionKind.VALUE, ""), METRIC_NAME):
        family = families.get(name)
        insert = name if _PLAIN_METRIC.fullmatch(name) else "{" + _quoted(name) + "}"
        yield Item(
            name, insert, "metric" if family is None else family.kind or "metric", "", family.help if family else ""
        )


def _found(call: ApiCall, place: CursorContext, label: str | None) -> list[str]:
    """Names of labels, or values of one label, of the series in memory that fit the conditions."""
    with call.storage() as storage:
        if label is None:
            return list(storage.label_names(place.matchers, None, None))[:SCANNED_MAX]
        return list(storage.label_values(label, place.matchers, None, None))[:SCANNED_MAX]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


class CompletionKind(enum.Enum):
    """The kind of text that completes the one before the cursor."""

    EXPRESSION = "expression"
    LABEL = "label"
    VALUE = "value"
    DURATION = "duration"
    KEYWORD = "keyword"
    VARIABLE = "variable"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class CursorContext:
    """prefix: the part that is typed. matchers: conditions that stand before, for labels and values. label: the label
    whose value is to be completed."""

    wanted: CompletionKind
    prefix: str
    matchers: Sequence[Matcher] = ()
    label: str = ""


def cursor_place(before: str) -> CursorContext:
    """The context at the end of `before`, the text up to the cursor. Never raises: a text without meaning gets no
    completion."""
    tokens, string = _tokens(before)
    if tokens is None:
        return CursorContext(CompletionKind.NOTHING, "")
    if string is not None:
        return _in_string(tokens, string)
    last = tokens[-1] if tokens else None
    is_typing = (
        last is not None
        and last.kind in (TokenKind.NAME, TokenKind.NUMBER, TokenKind.DURATION)
        and last.span.end == len(before)
    )
    prefix = last.text if last is not None and is_typing else ""
    rest = tokens[:-1] if is_typing else tokens
    opened = _opened(rest)
    if opened is not None and rest[opened].symbol == "[":
        return CursorContext(CompletionKind.DURATION, prefix)
    if prefix and not (prefix[0].isalpha() or prefix[0] in "_:"):
        return CursorContext(CompletionKind.NOTHING, "")
    if opened is not None and rest[opened].symbol == "{":
        if rest[-1].symbol != "{" and rest[-1].symbol != ",":
            return CursorContext(CompletionKind.NOTHING, "")
        return CursorContext(CompletionKind.LABEL, prefix, _matchers(rest, opened))
    if opened and rest[opened].symbol == "(" and rest[opened - 1].word in _LISTS:
        return CursorContext(CompletionKind.LABEL, prefix, _metric(tokens))
    if rest and (rest[-1].kind is not TokenKind.SYMBOL or rest[-1].text in _CLOSED) and rest[-1].word not in _WORDS:
        return CursorContext(CompletionKind.KEYWORD, prefix)
    return CursorContext(CompletionKind.EXPRESSION, prefix)


_WORDS = frozenset({"and", "or", "unless", "bool", "atan2"})


def _variable_place(before: str) -> CursorContext | None:
    """The context of a variable that is being typed outside a string."""
    found = _VARIABLE.search(before)
    if found is None or _tokens(replaced(before[: found.start()], 1, 1).text)[1] is not None:
        return None
    return CursorContext(CompletionKind.VARIABLE, found[0])


def _tokens(before: str) -> tuple[list[Token] | None, str | None]:
    """The tokens, and what is typed of a string that is still open."""
    try:
        return list(tokens_of(before))[:-1], None
    except QueryError as error:
        start = error.span.start
        if before[start] not in "\"'`" or not error.problem.startswith("unterminated"):
            return None, None
        try:
            return list(tokens_of(before[:start]))[:-1], before[start + 1 :]
        except QueryError:
            return None, None


def _in_string(tokens: list[Token], typed: str) -> CursorContext:
    opened = _opened(tokens)
    if opened is None or tokens[opened].symbol != "{" or len(tokens) < 2:
        return CursorContext(CompletionKind.NOTHING, "")
    if tokens[-1].text not in MATCH_TYPES or tokens[-2].kind not in (TokenKind.NAME, TokenKind.STRING):
        return CursorContext(CompletionKind.NOTHING, "")
    label = tokens[-2].text.strip("\"'`")
    return CursorContext(CompletionKind.VALUE, typed.replace('\\"', '"'), _matchers(tokens[:-2], opened), label)


def _opened(tokens: Sequence[Token]) -> int | None:
    """The index of the innermost bracket that is still open."""
    depth = 0
    for index in range(len(tokens) - 1, -1, -1):
        if tokens[index].kind is not TokenKind.SYMBOL:
            continue
        if tokens[index].text in _CLOSED:
            depth += 1
        elif tokens[index].text in _OPEN:
            if not depth:
                return index
            depth -= 1
    return None


def _matchers(tokens: Sequence[Token], opened: int) -> Sequence[Matcher]:
    """The conditions of a selector whose brace is still open: its name, and the equalities before the cursor."""
    found = []
    if (
        opened
        and tokens[opened - 1].kind is TokenKind.NAME
        and tokens[opened - 1].span.end == tokens[opened].span.start
    ):
        found.append(Matcher(MatchType.EQUAL, METRIC_NAME, tokens[opened - 1].text))
    inside = tokens[opened + 1 :]
    for name, operator, value in zip(inside, inside[1:], inside[2:], strict=False):
        is_plain = value.kind is TokenKind.STRING and "\\" not in value.text
        if name.kind is TokenKind.NAME and operator.symbol == "=" and is_plain:
            found.append(Matcher(MatchType.EQUAL, name.text, value.text[1:-1]))
    return found


def _metric(tokens: Sequence[Token]) -> Sequence[Matcher]:
    """The first metric that the expression names."""
    for token, following in pairwise(tokens):
        is_word = token.word in _LISTS or token.word in FUNCTIONS
        if token.kind is TokenKind.NAME and not is_word and "_" in token.text and following.text in ("{", "[", ")"):
            return (Matcher(MatchType.EQUAL, METRIC_NAME, token.text),)
    return ()
