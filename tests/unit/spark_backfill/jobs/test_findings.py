"""Findings of verify about one key: none while the key is right or not due yet, else the place and the problem."""

from __future__ import annotations

from itertools import permutations

import pytest

from spark_backfill.jobs.verify.findings import NOTHING, Horizon, KeyDigests, findings_of
from tsdb.codec.chunk.key import ChunkKey, Kind, WindowKey

WINDOW_MS = 100
AT = {0: Horizon(50, 1000, 200, loaded_position=40, loaded_through_ms=900, loader_offset=10)}
BASE = ChunkKey(7, 500, Kind.BASE, 30, 0)
LATE = ChunkKey(7, 500, Kind.LATE, 30, 0)
IMPORT = ChunkKey(7, 500, Kind.IMPORT, 30, 0)
RIGHT = KeyDigests(0, b"a", 3, b"a", b"a")


def said(key: ChunkKey | WindowKey, seen: KeyDigests, at: dict[int, Horizon] = AT) -> list[str]:
    return [f"{one.place.value} {one.problem.value}" for one in findings_of(key, seen, at, WINDOW_MS)]


@pytest.mark.parametrize(
    ("key", "seen", "want"),
    [
        (BASE, RIGHT, []),
        (LATE, RIGHT, []),
        (BASE, KeyDigests(0, b"a"), ["chunks missing", "history missing"]),
        (BASE, KeyDigests(0, b"a", 3, b"a"), ["history missing"]),
        (BASE, KeyDigests(0, b"a", 3, b"b", b"a"), ["chunks differing"]),
        (BASE, KeyDigests(0, b"a", 3, b"a", b"b"), ["history differing"]),
        (BASE, KeyDigests(0, None, 3, b"b", b"b"), ["chunks extra", "history extra"]),
        (BASE, KeyDigests(history=b"b"), ["history extra"]),
        (BASE, KeyDigests(0, b"a", 3, NOTHING, b"a"), ["chunks missing"]),
        # A fold covers it, so it was deleted; when it is written again, its bytes must be right.
        (BASE, KeyDigests(0, b"a", 3, NOTHING, None, covered=True), []),
        (BASE, KeyDigests(0, b"a", 3, NOTHING, b"a", covered=True), ["history extra"]),
        # The loader has not come to the null record that deletes it.
        (BASE, KeyDigests(0, b"a", 12, NOTHING, b"a", covered=True), []),
        (LATE, KeyDigests(0, b"a", 10, NOTHING, b"a", covered=True), []),
        (BASE, KeyDigests(0, b"a", 3, b"b", b"b", covered=True), ["chunks differing", "history differing"]),
        # Imports are in `chunks` alone.
        (IMPORT, KeyDigests(0, None, 3, b"a", b"a"), []),
        (IMPORT, KeyDigests(0, None, 3, b"a"), ["history missing"]),
        (IMPORT, KeyDigests(0, None, 12, b"a"), []),
        (IMPORT, KeyDigests(0, None, 3, NOTHING, b"a"), ["history extra"]),
        # These keys are not due yet.
        (ChunkKey(7, 500, Kind.LATE, 50, 0), KeyDigests(0, None, 3, b"b"), []),
        (ChunkKey(7, 500, Kind.LATE, 45, 0), KeyDigests(0, b"a", 3, b"a"), []),
        (ChunkKey(7, 900, Kind.BASE, 30, 0), KeyDigests(0, b"a", 3, b"a"), []),
        (ChunkKey(7, 1000, Kind.BASE, 30, 0), KeyDigests(0, None, 3, b"a"), []),
        (WindowKey(500), KeyDigests(0, b"a", 3, b"a"), []),
        (WindowKey(500), KeyDigests(0, b"a", 3, b"b"), ["chunks differing"]),
        (WindowKey(500), KeyDigests(0, b"a"), ["chunks missing"]),
        (WindowKey(100), KeyDigests(0, None, 3, b"a"), []),
    ],
)
def test_findings_for_a_key_follow_from_its_digests(
    key: ChunkKey | WindowKey, seen: KeyDigests, want: list[str]
) -> None:
    assert said(key, seen) == want


def test_without_history_only_chunks_are_compared() -> None:
    assert said(BASE, KeyDigests(0, b"a", 3, b"a"), {0: Horizon(50, 1000, 200)}) == []


def test_pieces_come_together_in_any_order() -> None:
    pieces = [
        KeyDigests(0, b"a"),
        KeyDigests(0, None, 3, b"x"),
        KeyDigests(0, None, 9, b"y"),
        KeyDigests(history=b"h"),
        KeyDigests(0, covered=True),
    ]
    for order in permutations(pieces):
        whole = order[0]
        for piece in order[1:]:
            whole = whole.plus(piece)
        assert whole == KeyDigests(0, b"a", 9, b"y", b"h", covered=True)
