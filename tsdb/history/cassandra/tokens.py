"""Token ranges of a ring. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tsdb.history.interface import TokenRange
from tsdb.history.row_keys import TOKEN_MAX, TOKEN_MIN


def token_ranges(ring: Iterable[int], count: int) -> list[TokenRange]:
    """The whole ring as at least `count` ranges in order, each between two neighbouring tokens of the ring."""
    assert count > 0, f"asked for {count} token ranges"
    borders = sorted({TOKEN_MIN, TOKEN_MAX, *ring})
    whole = TOKEN_MAX - TOKEN_MIN
    ranges: list[TokenRange] = []
    for after, through in pairwise(borders):
        pieces = max(1, -(-(through - after) * count // whole))
        cuts = [after + (through - after) * at // pieces for at in range(pieces + 1)]
        ranges += [TokenRange(a, b) for a, b in pairwise(cuts) if a < b]
    return ranges
