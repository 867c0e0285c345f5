"""Differences between two answers to one query."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from support.promql.comparison import Point, Row
from support.promql.differential.answers import Answer, Failure
from support.promql.shown_histograms import ShownHistogram
from tsdb.rules.unit_tests.notation import shown_labels

RELATIVE = 1e-9
# Below this, what remains of a subtraction is noise of its last bits.
ABSOLUTE = 1e-12
SHOWN_MAX = 5
# Version 2 leaves it out of the errors of range queries.
_PARAMETER = 'invalid parameter "query": '
# This store proposes names; Prometheus does not.
_SUGGESTION = re.compile(r"; did you mean .*\?")
# When several groups have duplicates, the error names the first in the order of the stored series; labels do not decide
# it.
_DUPLICATES = re.compile(r"(?<=match group ).*(?= on the (left|right) hand-side)|\[.*\](?=;many-to-many)")
# Prometheus merges a map of annotations into itself, and so counts the samples of an info twice and more.
_SAMPLES = re.compile(r", over -?\d+ samples from ")
_OMITTED = re.compile(r"\d+ more (warning|info) annotations omitted")


class Kind(enum.Enum):
    """Part of an answer that differs."""

    ERROR = "error"
    TYPE = "type"
    SERIES = "series"
    TIMES = "times"
    VALUES = "values"
    ORDER = "order"
    WARNINGS = "warnings"
    INFOS = "infos"


@dataclass(frozen=True, slots=True)
class Difference:
    """text: both results as text, for people."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


class Order(enum.Enum):
    """How far the order of the rows of an instant vector counts."""

    NONE = "none"
    VALUES = "values"  # Rows with equal values may come in any order.
    LABELS = "labels"


def difference(ours: Answer, theirs: Answer, order: Order, *, with_annotations: bool) -> Difference | None:
    """The first difference; None for equal answers. Annotations count where the server has those of 3.15."""
    if ours.failure is not None or theirs.failure is not None:
        return _failure_difference(ours.failure, theirs.failure)
    if ours.kind != theirs.kind or ours.text != theirs.text:
        return Difference(Kind.TYPE, f"ours {ours.kind} {ours.text!r}, theirs {theirs.kind} {theirs.text!r}")
    found = _row_difference(ours.rows, theirs.rows) or _order_difference(ours, theirs, order)
    if found or not with_annotations:
        return found
    return _annotation_difference(Kind.WARNINGS, ours.warnings, theirs.warnings) or _annotation_difference(
        Kind.INFOS, ours.infos, theirs.infos
    )


def close(one: Point, other: Point) -> bool:
    """Equal within the tolerance. NaN equals NaN."""
    if isinstance(one, ShownHistogram) and isinstance(other, ShownHistogram):
        return _close_histograms(one, other)
    if not isinstance(one, float) or not isinstance(other, float):
        return False
    if one == other or (one != one and other != other):
        return True
    apart = abs(one - other)
    return apart <= max(RELATIVE * max(abs(one), abs(other)), ABSOLUTE) and apart != float("inf")


def _close_histograms(one: ShownHistogram, other: ShownHistogram) -> bool:
    """Bounds are powers, which may differ in their last bit."""
    numbers = [(one.count, other.count), (one.sum, other.sum)]
    for bucket, another in zip(one.buckets, other.buckets, strict=False):
        numbers += [*zip(map(float, bucket), map(float, another), strict=True)]
    return len(one.buckets) == len(other.buckets) and all(close(*pair) for pair in numbers)


def _failure_difference(ours: Failure | None, theirs: Failure | None) -> Difference | None:
    if ours and theirs and ours.kind == theirs.kind and _comparable(ours.message) == _comparable(theirs.message):
        return None
    return Difference(Kind.ERROR, f"\n    ours: {ours or 'a result'}\n    theirs: {theirs or 'a result'}")


def _comparable(message: str) -> str:
    return _DUPLICATES.sub("", _SUGGESTION.sub("", message).removeprefix(_PARAMETER))


def _row_difference(ours: Sequence[Row], theirs: Sequence[Row]) -> Difference | None:
    here, there = {row.labels: row.points for row in ours}, {row.labels: row.points for row in theirs}
    if len(here) != len(ours) or len(there) != len(theirs):
        return Difference(Kind.SERIES, f"{len(here)} sets of labels in {len(ours)} rows of ours")
    if here.keys() != there.keys():
        return _sets(Kind.SERIES, map(shown_labels, here), map(shown_labels, there))
    for labels, points in here.items():
        others = there[labels]
        if points.keys() != others.keys():
            return _sets(Kind.TIMES, map(str, points), map(str, others), of=shown_labels(labels))
        bad = [(ts, value, others[ts]) for ts, value in points.items() if not close(value, others[ts])]
        if bad:
            texts = [f"at {ts} ours {value!r} theirs {other!r}" for ts, value, other in bad[:SHOWN_MAX]]
            of = shown_labels(labels)
            return Difference(Kind.VALUES, f"{of} {len(bad)} of {len(points)} values: {'; '.join(texts)}")
    return None


def _order_difference(ours: Answer, theirs: Answer, order: Order) -> Difference | None:
    if ours.kind != "vector" or order is Order.NONE:
        return None
    here, there = ([value for row in one.rows for value in row.points.values()] for one in (ours, theirs))
    same = all(map(close, here, there))
    if same and order is Order.LABELS:
        same = [row.labels for row in ours.rows] == [row.labels for row in theirs.rows]
    return None if same else Difference(Kind.ORDER, "".join(f"\n    {one.rows}" for one in (ours, theirs)))


def _annotation_difference(kind: Kind, ours: Sequence[str], theirs: Sequence[str]) -> Difference | None:
    """A server shows ten messages of each kind, in any order, and counts the others."""
    ours, theirs = ([_SAMPLES.sub(", over samples from ", message) for message in side] for side in (ours, theirs))
    shown = [message for message in theirs if not _OMITTED.fullmatch(message)]
    if len(shown) < len(theirs):
        # Any ten of ours would do.
        ours = [message for message in ours if message in shown] if len(set(ours)) > len(shown) else ours
    return None if set(ours) == set(shown) else _sets(kind, ours, shown)


def _sets(kind: Kind, ours: Iterable[str], theirs: Iterable[str], of: str = "") -> Difference:
    here, there = set(ours), set(theirs)
    only = (("ours", here - there), ("theirs", there - here))
    return Difference(kind, "".join(f"\n    {of} only in {side}: {_shown(found)}" for side, found in only if found))


def _shown(found: Collection[str]) -> str:
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return ", ".join(sorted(found)[:SHOWN_MAX]) + more
