"""Matchers: express the conditions of a selector, each on the value of one label."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

MATCHERS_MAX = 1_000  # Matchers of a selector. Each is a search among the values of its label.


class MatchType(enum.Enum):
    """Comparison of a matcher. The values are those of the wire (common.proto)."""

    EQUAL = 0
    NOT_EQUAL = 1
    REGEX = 2
    NOT_REGEX = 3

    __hash__ = object.__hash__  # The hash of Enum is a function of Python, and matchers are keys of caches.


MATCH_TYPES = {
    "=": MatchType.EQUAL,
    "!=": MatchType.NOT_EQUAL,
    "=~": MatchType.REGEX,
    "!~": MatchType.NOT_REGEX,
}


class Matcher(NamedTuple):
    """One label condition; an absent label has the value "". Regular expressions are RE2, anchored at both ends."""

    type: MatchType
    name: str
    value: str


def chars_of(matchers: Iterable[Matcher]) -> int:
    """Characters of the texts of matchers: what a cache takes for its key."""
    return sum(len(matcher.name) + len(matcher.value) for matcher in matchers)
