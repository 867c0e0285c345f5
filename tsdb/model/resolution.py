"""Resolutions: series that are derived from others, with one sample per interval, and marked by two extra labels. Pure.

A derived series has the labels of its source, `__resolution__` and `__aggr__`. Gateways refuse these labels, so no
client can write a derived series. A selector finds derived series only when it names `__resolution__`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tsdb.model.labels import RESERVED, SEPARATOR, canonical_labels, parse_labels
from tsdb.model.selector import Matcher, MatchType

RESOLUTION, AGGREGATE = (name.decode() for name in RESERVED)
RESOLUTIONS_MS = {"5m": 300_000, "1h": 3_600_000}
COUNT, SUM, MIN, MAX, LAST, INCREASE = AGGREGATES = ("count", "sum", "min", "max", "last", "increase")

_LABEL = RESOLUTION.encode()
# A request without matchers means every series except derived ones.
UNDERIVED = (Matcher(MatchType.NOT_EQUAL, "__name__", ""), Matcher(MatchType.EQUAL, RESOLUTION, ""))


def derived_labels(canonical: bytes, resolution: str, aggregate: str) -> bytes:
    """Canonical labels of the series derived from a source with an aggregate at a resolution."""
    return canonical_labels([*parse_labels(canonical), (RESOLUTION, resolution), (AGGREGATE, aggregate)])


def source_labels(canonical: bytes) -> tuple[bytes, str, str]:
    """(canonical labels of the source, resolution, aggregate); both are empty for a series that is not derived."""
    labels = dict(parse_labels(canonical))
    resolution, aggregate = labels.pop(RESOLUTION, ""), labels.pop(AGGREGATE, "")
    return canonical_labels(labels), resolution, aggregate


def is_derived(canonical: bytes) -> bool:
    """Whether these labels name a resolution."""
    return _LABEL in canonical and _LABEL in canonical.split(SEPARATOR)[::2]


def underived(matchers: Iterable[Matcher]) -> tuple[Matcher, ...]:
    """The matchers, and one more that excludes derived series unless a given matcher names `__resolution__`."""
    given = tuple(matchers)
    if not given:
        return UNDERIVED
    if any(matcher.name == RESOLUTION for matcher in given):
        return given
    return (*given, Matcher(MatchType.EQUAL, RESOLUTION, ""))
