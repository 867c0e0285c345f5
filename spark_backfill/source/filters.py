"""Filters: converts conditions of a query that Spark pushes down to a narrower span, label matchers and sets of ids.

Every returned row satisfies each filter taken here, so Spark does not apply it again. Spark applies all other filters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringEndsWith,
    StringStartsWith,
)

from spark_backfill.source.columns import LABELS, PACK_ID, SERIES_ID, TS, VALUE, SampleColumns
from spark_backfill.source.options import TimeSpan
from tsdb.history.rows import unsigned
from tsdb.model.selector import Matcher, MatchType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US_PER_MS = 1_000
_PATTERN_CHARS_MAX = 4_096  # Spark itself applies a longer list.


@dataclass(frozen=True, slots=True)
class Narrowing:
    """span: sample times. matchers: conditions on labels. series_ids, pack_ids: unsigned ids; None: any."""

    span: TimeSpan = field(default_factory=TimeSpan)
    matchers: tuple[Matcher, ...] = ()
    series_ids: frozenset[int] | None = None
    pack_ids: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Pushed:
    """narrowing: filters taken here. left: filters that Spark still applies."""

    narrowing: Narrowing
    left: list[Filter]


def push(filters: Iterable[Filter], columns: SampleColumns) -> Pushed:
    """Take every filter that a reader can apply exactly. All filters of a query must hold."""
    narrowing, left = Narrowing(), []
    for each in filters:
        taken = _taken(each, narrowing, columns)
        if taken is None:
            left.append(each)
        else:
            narrowing = taken
    return Pushed(narrowing, left)


def _taken(one: Filter, to: Narrowing, columns: SampleColumns) -> Narrowing | None:
    inner = one.child if isinstance(one, Not) else one
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(attribute) != 1:
        return None
    name = attribute[0]
    if isinstance(one, IsNotNull) and name in (LABELS, SERIES_ID, PACK_ID, TS, VALUE):
        return to
    if name == TS:
        return _on_time(one, to)
    if name in (SERIES_ID, PACK_ID):
        return _on_id(one, name, to)
    return _on_label(one, name, to) if name in columns.labels else None


def _on_time(one: Filter, to: Narrowing) -> Narrowing | None:
    """Narrow the span. Timestamps are whole ms, so a bound between two of them moves up to the next one."""
    value = getattr(one, "value", None)
    if not isinstance(value, datetime):
        return None
    us = _us(value)
    at_or_after, after = -(-us // _US_PER_MS), us // _US_PER_MS + 1
    match one:
        case EqualTo():
            span = TimeSpan(at_or_after, after)
        case GreaterThanOrEqual():
            span = TimeSpan(start_ms=at_or_after)
        case GreaterThan():
            span = TimeSpan(start_ms=after)
        case LessThan():
            span = TimeSpan(end_ms=at_or_after)
        case LessThanOrEqual():
            span = TimeSpan(end_ms=after)
        case _:
            return None
    return replace(to, span=to.span.within(span))


def _us(value: datetime) -> int:
    since = value.astimezone(UTC) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _on_id(one: Filter, name: str, to: Narrowing) -> Narrowing | None:
    values = _equal_to_any(one)
    if values is None:
        return None
    ids = frozenset(unsigned(value) for value in values if isinstance(value, int))
    if len(ids) != len(set(values)):
        return None
    if name == SERIES_ID:
        return replace(to, series_ids=ids if to.series_ids is None else ids & to.series_ids)
    return replace(to, pack_ids=ids if to.pack_ids is None else ids & to.pack_ids)


def _on_label(one: Filter, name: str, to: Narrowing) -> Narrowing | None:
    found = _matchers(one, name)
    return None if found is None else replace(to, matchers=tuple(dict.fromkeys((*to.matchers, *found))))


def _matchers(one: Filter, name: str) -> tuple[Matcher, ...] | None:
    """Matchers of the series that satisfy the filter. To a matcher "" is an absent label, which Spark shows as null."""
    present = Matcher(MatchType.NOT_EQUAL, name, "")
    match one:
        case IsNotNull():
            return (present,)
        case EqualTo(value=str(value)) if value:
            return (Matcher(MatchType.EQUAL, name, value),)
        case In(value=values) if all(isinstance(value, str) and value for value in values):
            pattern = "|".join(map(re.escape, values))
            return (Matcher(MatchType.REGEX, name, pattern),) if 0 < len(pattern) <= _PATTERN_CHARS_MAX else None
        case StringStartsWith(value=value) if value:
            return (Matcher(MatchType.REGEX, name, f"{re.escape(value)}.*"),)
        case StringEndsWith(value=value) if value:
            return (Matcher(MatchType.REGEX, name, f".*{re.escape(value)}"),)
        case Not(child=EqualTo(value=str(value))) if value:  # A comparison with null is null and gives no row.
            return present, Matcher(MatchType.NOT_EQUAL, name, value)
    return None


def _equal_to_any(one: Filter) -> tuple[object, ...] | None:
    if isinstance(one, EqualTo):
        return (one.value,)
    return tuple(one.value) if isinstance(one, In) else None
