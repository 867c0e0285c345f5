"""Parser of selectors and of lists of labels."""

from __future__ import annotations

from tsdb.index.pattern import compile_pattern
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import MATCH_TYPES, MATCHERS_MAX, Matcher, MatchType
from tsdb.promql.syntax.cursor import Cursor
from tsdb.promql.syntax.errors import TextSpan
from tsdb.promql.syntax.literals import quoted
from tsdb.promql.syntax.tokens import TokenKind
from tsdb.promql.syntax.tree import VectorSelector

METRIC_NAME = "__name__"
_REGEX = (MatchType.REGEX, MatchType.NOT_REGEX)
_POSITIVE = (MatchType.EQUAL, MatchType.REGEX)


def selector(cursor: Cursor) -> VectorSelector:
    """`name`, `name{...}` or `{...}`. Whether it matches only series without labels is left to the caller."""
    start = cursor.token.span
    name = cursor.take().text if cursor.token.kind is TokenKind.NAME else ""
    matchers = [Matcher(MatchType.EQUAL, METRIC_NAME, name)] if name else []
    if cursor.skip("{"):
        _matchers_into(matchers, name, cursor)
    return VectorSelector(name, tuple(matchers), cursor.span_from(start))


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
    if not name or name.encode(errors="ignore").decode() != name:  # Bytes that are no UTF-8 are surrogates.
        cursor.fail(f"invalid label name for grouping: {quoted(name)}", span)
    return name


def _matchers_into(matchers: list[Matcher], name: str, cursor: Cursor) -> None:
    """The matchers up to the closing brace. name: before the braces; a quoted one inside stands for it."""
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
