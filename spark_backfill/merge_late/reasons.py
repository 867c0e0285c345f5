"""Reasons: counts by reason, as values that tasks return."""

from __future__ import annotations

from collections import Counter

Reasons = tuple[tuple[str, int], ...]  # (reason, count), ascending.


def counted(one: Reasons, other: Reasons) -> Reasons:
    """The sum of both."""
    tally = Counter(dict(one))
    tally.update(dict(other))
    return tuple(sorted(tally.items()))
