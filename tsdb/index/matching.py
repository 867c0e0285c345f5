"""Matching: finds the refs of matchers, with the rules of Prometheus, and caches the refs of recent selectors.

All matchers must hold; an absent label has the value "". A matcher that refuses "" keeps the series that have one of
the pairs it accepts. A matcher that accepts "" drops the series that have one of the pairs it refuses. So every matcher
becomes a set of pairs. The bitmaps of few pairs are combined; many pairs are marked, and the labels of each remaining
ref are checked for a mark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from tsdb.index.label_arena import LabelArena
from tsdb.index.postings import Postings
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher, MatchType, chars_of
from tsdb.selector.pattern import Pattern, compile_pattern

BITMAPS_MAX = 64  # A union takes 1 us per bitmap; checking the labels of one ref takes about 20 ns.
REFS_PER_BITMAP = 50

SELECTORS_MAX = 256
# 8 MiB. A larger answer is not cached. A text counts as the number of refs with the same memory.
REFS_MAX = 1 << 21
REF_BYTES = 4
Matchers = tuple[Matcher, ...]
Key = tuple[bytes, str, bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """One matcher in normal form: the pairs of `name` whose value satisfies `pattern`, or does not (wanted False).

    keep: True keeps series with such a pair, False drops them.
    """

    name: bytes
    text: str
    pattern: Pattern
    wanted: bool
    keep: bool

    @property
    def key(self) -> Key:
        """Cache key: equal for conditions that select the same pairs."""
        return self.name, self.text, self.wanted

    @property
    def is_look_up(self) -> bool:
        """Whether the pairs are found from the pattern alone, without testing stored values."""
        return self.wanted and self.pattern.literals is not None


@dataclass(frozen=True, slots=True)
class ResolvedCondition:
    """A condition with its pairs, uint32 ascending."""

    pairs: NDArray[np.uint32]
    keep: bool


def conditions_of(matchers: Iterable[Matcher]) -> tuple[Condition, ...]:
    """Raises InvalidRequest: selector_too_broad when "" satisfies every matcher, regex_*, bad_matcher."""
    conditions = tuple(_condition(matcher) for matcher in matchers)
    if not any(condition.keep for condition in conditions):
        raise InvalidRequest(
            "selector matches series without any of its labels; at least one matcher must not match the empty value",
            reason="selector_too_broad",
        )
    return conditions


def _condition(matcher: Matcher) -> Condition:
    try:
        name, value = matcher.name.encode(), matcher.value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"matcher on {matcher.name!r} is not UTF-8", reason="bad_matcher") from None
    if matcher.type in (MatchType.REGEX, MatchType.NOT_REGEX):
        pattern = compile_pattern(matcher.value)
    else:
        pattern = Pattern(frozenset((value,)), b"", 0, None)
    negated = matcher.type in (MatchType.NOT_EQUAL, MatchType.NOT_REGEX)
    keep = pattern.matches(b"") == negated
    return Condition(name, matcher.value, pattern, wanted=keep != negated, keep=keep)


def combine(
    steps: Iterable[ResolvedCondition], postings: Postings, series: int, live: Callable[[], NDArray[np.uint32]]
) -> tuple[NDArray[np.uint32], list[ResolvedCondition]]:
    """(refs that pass the steps over few pairs, ascending; the steps left for `narrow`).

    At least one step has keep set. series: number of all refs. live: returns all refs, ascending. Needs the lock of the
    postings; `narrow` needs no lock.
    """
    counts = postings.counts()
    by_size = sorted(steps, key=lambda step: (not step.keep, int(counts[step.pairs].sum())))
    bitmaps_max = max(BITMAPS_MAX, series // REFS_PER_BITMAP)
    few = [step for step in by_size if len(step.pairs) <= bitmaps_max]
    if not few or not few[0].keep:
        return live(), by_size
    found: BitMap = postings.union(few[0].pairs)
    for step in few[1:]:
        if not found:
            break
        other = postings.union(step.pairs)
        found = found & other if step.keep else found - other
    many = [step for step in by_size if len(step.pairs) > bitmaps_max]
    return np.frombuffer(found.to_array(), np.uint32), many


def narrow(refs: NDArray[np.uint32], steps: Iterable[ResolvedCondition], arena: LabelArena) -> NDArray[np.uint32]:
    """The refs that pass all steps, in order."""
    for step in steps:
        refs = arena.filter(refs, step.pairs, keep=step.keep)
    return refs


class SelectCache:
    """Holds answers of one generation of the index. Used under the index's lock."""

    def __init__(self) -> None:
        self._generation = -1
        self._answers: OrderedDict[Matchers, NDArray[np.uint32]] = OrderedDict()
        self._refs = 0

    @property
    def nbytes(self) -> int:
        return REF_BYTES * self._refs

    def get(self, matchers: Matchers, generation: int) -> NDArray[np.uint32] | None:
        """The cached answer of this generation, or None."""
        if generation != self._generation:
            return None
        answer = self._answers.get(matchers)
        if answer is not None:
            self._answers.move_to_end(matchers)
        return answer

    def put(self, matchers: Matchers, generation: int, refs: NDArray[np.uint32]) -> None:
        """Cache an answer. Answers of older generations are dropped, then the least recently used."""
        if generation > self._generation:
            self._answers.clear()
            self._generation, self._refs = generation, 0
        size = _size(matchers, refs)
        if generation < self._generation or size > REFS_MAX or matchers in self._answers:
            return
        self._answers[matchers] = refs
        self._refs += size
        while len(self._answers) > SELECTORS_MAX or self._refs > REFS_MAX:
            self._refs -= _size(*self._answers.popitem(last=False))


def _size(matchers: Matchers, refs: NDArray[np.uint32]) -> int:
    return len(refs) + chars_of(matchers) // REF_BYTES
