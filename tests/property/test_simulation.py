"""Attacks all promises at once: whole systems of real components, stepped by seeds over a log and history with faults.

Every read is what a dict of all samples says or a refusal, drained systems answer everything, stores at equal offsets
give equal bytes, a key is never written with other bytes, no commit and no `loaded` passes unfinished work. A failure
prints the schedule that reproduces it, with as few steps as were found.
"""

from __future__ import annotations

from collections import Counter

import pytest

from support.simulation.driver import failure_of, run, shrunk
from support.simulation.profile import ALL, PROFILES, Profile

pytestmark = pytest.mark.slow

SEEDS, BLOCKS = 200, 8  # tests/soak/test_simulation_drill.py has 5,000.


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whole_systems_keep_every_promise_under_any_schedule(block: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        profile = profile_of(seed)
        failure = failure_of(seed, profile, counts=counts)
        assert failure is None, str(shrunk(failure, profile))
    # A schedule in which nothing happens would keep every promise.
    assert counts["answered"] > 10 * SEEDS // BLOCKS
    assert counts["accepted"] > 10 * SEEDS // BLOCKS
    assert counts["joined"] > SEEDS // BLOCKS // 4
    assert counts["with history"] > 3 * SEEDS // BLOCKS
    assert counts["queries"] > SEEDS // BLOCKS // 4
    assert counts["listings"] > SEEDS // BLOCKS // 4
    assert counts["watched"] > SEEDS // BLOCKS // 4
    assert counts["histograms answered"] > SEEDS // BLOCKS
    assert counts["start timestamps answered"] > SEEDS // BLOCKS
    happened = (
        *("imported", "windows folded", "trimmed", "compacted", "heads restored", "chunks rebuilt"),
        *("queries with values", "range selectors"),
    )
    assert min(counts[what] for what in happened) > 0


def profile_of(seed: int) -> Profile:
    """Every other schedule uses the whole mix, and those between them each profile in turn."""
    return PROFILES[seed // 2 % len(PROFILES)] if seed % 2 else ALL


def test_a_schedule_runs_the_same_twice() -> None:
    assert run(7) == run(7)
