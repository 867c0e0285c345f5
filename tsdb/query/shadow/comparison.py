"""Compares two answers to one read. Pure.

The shadow answers later, so it may have newer samples. Differences that begin within the last RECENT_MS before the
answer are therefore `recent` and not reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.client import QueryResult, SelectResult
from tsdb.model.details import detail_digests

RECENT_MS = 60_000  # Above the lag at which a store is no longer ready, 20 s.
TOLERANCE = 1e-12  # Relative tolerance of evaluated values, whose sums are computed in another order.
SERIES_SHOWN_MAX = 20
ROWS_SHOWN_MAX = 50

Column = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class ComparedAnswer:
    """An answer. series: (ts_ms, values) by canonical labels, or by id for a series without labels. coverage: other
    facts that must agree, as texts. exact: whether values are compared bit for bit. digests: those of the details of
    the samples, by the keys of `series`; none where no sample has details.
    """

    series: Mapping[bytes, Column]
    coverage: frozenset[str]
    exact: bool
    digests: Mapping[bytes, NDArray[np.uint64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeriesDifference:
    """Difference of one series. kind: series, samples or values. rows: (ts_ms, own, shadow); None where a side has no
    sample."""

    key: bytes
    kind: str
    rows: list[tuple[int, float | None, float | None]]


@dataclass(slots=True)
class Differences:
    """counts: number of differences by kind. shown: the first ones. recent: whether some of them are recent."""

    counts: dict[str, int] = field(default_factory=dict)
    shown: list[SeriesDifference] = field(default_factory=list)
    coverage: list[str] = field(default_factory=list)
    recent: bool = False

    @property
    def result(self) -> str:
        return "different" if self.counts else "recent" if self.recent else "equal"

    def add(self, kind: str, count: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count


def rows_of(answer: SelectResult | QueryResult) -> ComparedAnswer:
    """The rows of an answer as the client decodes it."""
    spans = [slice(int(start), int(end)) for start, end in zip(answer.starts[:-1], answer.starts[1:], strict=True)]
    if isinstance(answer, QueryResult):
        keys = list(answer.canonical)
        coverage = frozenset((*answer.warnings, f"kind {answer.kind}", f"text {answer.text}"))
        exact = False
    else:
        ids = answer.series_ids.tolist()
        keys = [canonical or str(ids[index]).encode() for index, canonical in enumerate(answer.canonical)]
        coverage = frozenset(
            text
            for state in answer.partitions
            for text in (
                f"partition {state.partition} of topic {state.topic_id}",
                *(f"hole {hole.partition} {hole.start_ms} {hole.end_ms} {hole.reason}" for hole in state.holes),
            )
        )
        exact = True
    columns = ((answer.ts_ms[span], answer.values[span]) for span in spans)
    series = dict(zip(keys, columns, strict=True))
    if isinstance(answer, QueryResult) or answer.details is None:
        return ComparedAnswer(series, coverage, exact)
    digests = detail_digests(answer.details, answer.samples)
    return ComparedAnswer(series, coverage, exact, {key: digests[span] for key, span in zip(keys, spans, strict=True)})


def compare(own: ComparedAnswer, shadow: ComparedAnswer, at_ms: int) -> Differences:
    """Find all differences. at_ms: time at which our answer was complete."""
    found = Differences()
    found.coverage = sorted(own.coverage ^ shadow.coverage)
    if found.coverage:
        found.add("coverage", len(found.coverage))
    nothing = np.empty(0, np.int64), np.empty(0)
    for key in dict.fromkeys((*own.series, *shadow.series)):
        one, other = own.series.get(key, nothing), shadow.series.get(key, nothing)
        digests = None
        if own.digests or shadow.digests:
            sides = zip((own, shadow), (one, other), strict=True)
            digests = [side.digests.get(key, np.zeros(len(column[0]), np.uint64)) for side, column in sides]
        _compare_series(found, key, one, other, own, at_ms, digests)
    return found


def _compare_series(
    found: Differences,
    key: bytes,
    own: Column,
    shadow: Column,
    rows: ComparedAnswer,
    at_ms: int,
    digests: Sequence[NDArray[np.uint64]] | None,
) -> None:
    same_times = len(own[0]) == len(shadow[0]) and (own[0] == shadow[0]).all()
    if (
        same_times
        and _same(own[1], shadow[1], rows.exact).all()
        and (digests is None or np.array_equal(digests[0], digests[1]))
    ):
        return
    times = np.union1d(own[0], shadow[0])
    (ours, in_own), (theirs, in_shadow) = _aligned(own, times), _aligned(shadow, times)
    both = in_own & in_shadow
    differs = ~both | ~_same(ours, theirs, rows.exact)
    if digests is not None:
        # A difference of details is one of values.
        aligned = [np.zeros(len(times), np.uint64) for _ in digests]
        for into, column, of in zip(aligned, (own, shadow), digests, strict=True):
            into[np.searchsorted(times, column[0])] = of
        differs |= aligned[0] != aligned[1]
    old = differs & (times < at_ms - RECENT_MS)
    found.recent = found.recent or bool((differs & ~old).any())
    if not old.any():
        return
    lacking, wrong = int((old & ~both).sum()), int((old & both).sum())
    one_side = not in_own.any() or not in_shadow.any()
    if one_side:
        found.add("series")
    elif lacking:
        found.add("samples", lacking)
    if wrong:
        found.add("values", wrong)
    if len(found.shown) < SERIES_SHOWN_MAX:
        kind = "series" if one_side else "samples" if lacking else "values"
        at = np.flatnonzero(old)[:ROWS_SHOWN_MAX]
        shown = [
            (int(times[i]), float(ours[i]) if in_own[i] else None, float(theirs[i]) if in_shadow[i] else None)
            for i in at.tolist()
        ]
        found.shown.append(SeriesDifference(key, kind, shown))


def _aligned(column: Column, times: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(values at `times`, whether there is one)."""
    values, present = np.full(len(times), np.nan), np.zeros(len(times), np.bool_)
    at = np.searchsorted(times, column[0])
    values[at], present[at] = column[1], True
    return values, present


def _same(a: NDArray[np.float64], b: NDArray[np.float64], exact: bool) -> NDArray[np.bool_]:
    bits: NDArray[np.bool_] = a.view(np.int64) == b.view(np.int64)
    if exact:
        return bits
    with np.errstate(invalid="ignore"):
        near: NDArray[np.bool_] = np.abs(a - b) <= TOLERANCE * np.maximum(np.abs(a), np.abs(b))
    return bits | near | (np.isnan(a) & np.isnan(b))
