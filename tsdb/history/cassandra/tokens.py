"""Token ranges of a Cassandra ring. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tsdb.history.interface import TokenRange
from tsdb.history.row_keys import TOKEN_MAX, TOKEN_MIN

_RING = 1 << 64  # Number of tokens.


def estimated_bytes(estimates: Iterable[tuple[str, str, int, int]]) -> int:
    """Bytes of a whole table, from one server's estimates of its ranges: (start, end, mean bytes, row keys)."""
    tokens = size = 0
    for start, end, mean_bytes, row_keys in estimates:
        # A range from a token to itself is the whole ring.
        tokens += (int(end) - int(start)) % _RING or _RING
        size += mean_bytes * row_keys
    return size * _RING // tokens if tokens else 0


def token_ranges(ring: Iterable[int], count: int) -> list[TokenRange]:
    """The whole ring as at least `count` ranges in order, each between two neighbouring tokens of the ring."""
    assert count > 0, f"got a count of {count} token ranges"
    borders = sorted({TOKEN_MIN, TOKEN_MAX, *ring})
    whole = TOKEN_MAX - TOKEN_MIN
    ranges: list[TokenRange] = []
    for after, through in pairwise(borders):
        pieces = max(1, -(-(through - after) * count // whole))
        cuts = [after + (through - after) * at // pieces for at in range(pieces + 1)]
        ranges += [TokenRange(a, b) for a, b in pairwise(cuts) if a < b]
    return ranges
