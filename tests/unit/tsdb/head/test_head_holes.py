"""Holes are bounded, and leave when no read can touch them."""

from __future__ import annotations

from tsdb.head.holes import Holes
from tsdb.head.state import Hole


def test_too_many_holes_become_one_per_reason_that_covers_them() -> None:
    holes = Holes(3)
    for n in range(4):
        holes.add([Hole(100 * n, 100 * n + 50, ("a", "b")[n % 2], n, pack_id=n)])
    assert holes.all == (Hole(0, 250, "a", 2), Hole(100, 350, "b", 3))


def test_a_hole_stays_while_its_times_are_covered_or_its_record_is_held() -> None:
    holes = Holes(10)
    covered, held, gone = Hole(0, 101, "a", 1), Hole(0, 100, "a", 7), Hole(0, 100, "a", 6)
    holes.add([covered, held, gone])
    holes.drop(coverage_start_ms=100, since_offset=7)
    assert holes.all == (covered, held)
