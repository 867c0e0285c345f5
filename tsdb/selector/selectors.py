"""Grammar of selectors, `name{label="value",other=~"re.*"}`, and of lists of labels: parses texts to matchers.

It is a part of PromQL's grammar, so that a text is accepted in an expression, by the client, on the command line and
by Spark alike. A name with other characters stands in quotes: `{"http.requests",job="a"}`.
"""

from __future__ import annotations

from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import MATCH_TYPES, MATCHERS_MAX, Matcher, MatchType
from tsdb.selector.pattern import compile_pattern
from tsdb.selector.tokens import Cursor, QueryError, TextSpan, TokenKind, quoted

METRIC_NAME = "__name__"
# Names that are metrics only in quotes. PromQL's other keywords are metrics wherever an operator cannot stand.
RESERVED_WORDS = frozenset({"bool", "on", "ignoring", "group_left", "group_right", "atan2", "inf", "nan"})
NO_SERIES_NAMED = "vector selector must contain at least one non-empty matcher"
_REGEX = (MatchType.REGEX, MatchType.NOT_REGEX)
_POSITIVE = (MatchType.EQUAL, MatchType.REGEX)


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Parse the text of one selector. Raises InvalidRequest (bad_selector, selector_too_broad) with the position.

    Prometheus also accepts strings that are not UTF-8. No label has such a name or value, and no message carries one.
    """
    try:
        matchers = matchers_of(text)
    except QueryError as error:
        raise InvalidRequest(error.message, reason="bad_selector") from None
    if all(map(matches_empty, matchers)):
        raise InvalidRequest(NO_SERIES_NAMED, reason="selector_too_broad")
    if not all(is_utf8(matcher.name) and is_utf8(matcher.value) for matcher in matchers):
        raise InvalidRequest("a string of the selector is not UTF-8; no label is so", reason="bad_selector")
    return matchers


def matchers_of(text: str) -> tuple[Matcher, ...]:
    """Parse a selector that may have any bytes in strings, or select all series; else see `parse_selector`. Raises
    QueryError.
    """
    cursor = Cursor(text)
    _, matchers, _ = selector(cursor)
    if not cursor.at_end:
        cursor.fail_unexpected("")
    return matchers


def selector(cursor: Cursor) -> tuple[str, tuple[Matcher, ...], TextSpan]:
    """Take `name`, `name{...}` or `{...}`: (the name before the braces, matchers, span).

    A selector of all series passes: `matches_empty` tells it.
    """
    start = cursor.token.span
    if cursor.token.word in RESERVED_WORDS:
        cursor.fail_unexpected("")
    name = cursor.take().text if cursor.token.kind is TokenKind.NAME else ""
    matchers = [Matcher(MatchType.EQUAL, METRIC_NAME, name)] if name else []
    if cursor.skip("{"):
        _matchers_into(matchers, name, cursor)
    elif not name:
        cursor.fail_unexpected("", 'a metric name or "{"')
    return name, tuple(matchers), cursor.span_from(start)


def matches(matcher: Matcher, value: str) -> bool:
    """Whether a label with this value matches; a series without the label has the value ""."""
    if matcher.type in _REGEX:
        found = compile_pattern(matcher.value).matches(value.encode(errors="surrogateescape"))
    else:
        found = value == matcher.value
    return found is (matcher.type in _POSITIVE)


def matches_empty(matcher: Matcher) -> bool:
    """Whether a series without the label matches."""
    return matches(matcher, "")


def is_utf8(text: str) -> bool:
    """Whether a text has no lone surrogates, which stand for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def labels(cursor: Cursor, where: str) -> tuple[str, ...]:
    """`(a, b, "a quoted one")`, also empty or with a comma at the end."""
    cursor.expect("(", where)
    found: list[str] = []
    while not cursor.skip(")"):
        found.append(_grouping_label(cursor, where))
        if not cursor.skip(","):
            if not cursor.skip(")"):
                cursor.fail_unexpected(where, '"," or ")"')
            break
    return tuple(found)


def _label(cursor: Cursor, where: str) -> str:
    token = cursor.token
    if token.kind is TokenKind.STRING:
        return cursor.string()
    if token.kind is not TokenKind.NAME or ":" in token.text:
        cursor.fail_unexpected(where, "label")
    return cursor.take().text


def _grouping_label(cursor: Cursor, where: str) -> str:
    span = cursor.token.span
    name = _label(cursor, where)
    if not name or name.encode(errors="ignore").decode() != name:  # Bytes that are not UTF-8 are surrogates.
        cursor.fail(f"invalid label name for grouping: {quoted(name)}", span)
    return name


def _matchers_into(matchers: list[Matcher], name: str, cursor: Cursor) -> None:
    """The matchers up to the closing brace. name: the name before the braces; a quoted name inside replaces it."""
    while not cursor.skip("}"):
        start = cursor.token.span
        found, is_name = _matcher(cursor)
        span = cursor.span_from(start)
        if found.type in _REGEX:
            _check_pattern(cursor, found.value, span)
        if found.name == METRIC_NAME and (name or is_name):
            before = next((one.value for one in matchers if one.name == METRIC_NAME), "")
            if before:
                cursor.fail(f'metric name must not be set twice: "{before}" or "{found.value}"', span)
        name = name or (found.value if is_name else "")
        matchers.append(found)
        if len(matchers) > MATCHERS_MAX:
            cursor.fail(f"selector has more than {MATCHERS_MAX} matchers")
        if not cursor.skip(","):
            if not cursor.skip("}"):
                cursor.fail_unexpected("label matching", '"," or "}"')
            return


def _matcher(cursor: Cursor) -> tuple[Matcher, bool]:
    """A matcher, and whether it is a metric's name in quotes."""
    token = cursor.token
    if token.kind not in (TokenKind.NAME, TokenKind.STRING):
        cursor.fail_unexpected("label matching", 'label name or "}"')
    label = _label(cursor, "label matching")
    if token.kind is TokenKind.STRING and not _is_operator(cursor):
        return Matcher(MatchType.EQUAL, METRIC_NAME, label), True
    if not _is_operator(cursor):
        cursor.fail_unexpected("label matching", "label matching operator")
    operator = cursor.take().text
    if cursor.token.kind is not TokenKind.STRING:
        cursor.fail_unexpected("label matching", "string")
    return Matcher(MATCH_TYPES[operator], label, cursor.string()), False


def _is_operator(cursor: Cursor) -> bool:
    return cursor.token.kind is TokenKind.SYMBOL and cursor.token.text in MATCH_TYPES


def _check_pattern(cursor: Cursor, pattern: str, span: TextSpan) -> None:
    try:
        compile_pattern(pattern)
    except InvalidRequest as error:
        cursor.fail(error.message, span)
