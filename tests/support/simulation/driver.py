"""Driver: makes schedules out of seeds, runs them, drains what they leave, and shrinks one that fails."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from support.simulation.actions import ACTIONS
from support.simulation.jobs import end_imports
from support.simulation.log import LogFaults
from support.simulation.oracle import Violation
from support.simulation.profile import ALL, Profile
from support.simulation.reads import EVERYTHING, SELECTORS, check_read
from support.simulation.times import DAY_MS, SMALL_RESOLUTIONS_MS, TIMES
from support.simulation.trims import repair
from support.simulation.world import World
from tsdb.client import ReadOptions, SelectQuery
from tsdb.model.errors import TsdbError
from tsdb.model.resolution import RESOLUTIONS_MS

ROUNDS_MAX = 600
LOOK_EVERY, MAINTAIN_EVERY = 15, 7


@dataclass(frozen=True)
class Step:
    """One action, and the seed of all that it decides."""

    action: str
    seed: int

    def __str__(self) -> str:
        return f"{self.action}:{self.seed}"


@dataclass(frozen=True)
class Failure:
    """A schedule that breaks a promise. str() gives the code that reproduces it."""

    seed: int
    profile: str
    steps: tuple[Step, ...]
    error: str

    def __str__(self) -> str:
        steps = " ".join(map(str, self.steps))
        return f"seed {self.seed}, profile {self.profile}, {len(self.steps)} steps: {steps}\n{self.error}"


def schedule(seed: int, profile: Profile = ALL) -> tuple[Step, ...]:
    """The schedule of a seed."""
    rng = random.Random(seed)
    names, weights = list(profile.weights), list(profile.weights.values())
    return tuple(Step(name, rng.randrange(1 << 30)) for name in rng.choices(names, weights, k=profile.steps))


def run(seed: int, profile: Profile = ALL, steps: Sequence[Step] | None = None) -> Counter[str]:
    """Execute one schedule and its drain. Raises Violation, or a component's unexpected error."""
    # Limits of memory are looked at with every batch.
    small = patch.dict(RESOLUTIONS_MS, SMALL_RESOLUTIONS_MS)
    with _quiet(), small, patch("tsdb.head.write.apply.CHECK_SAMPLES", 0):
        return _run(seed, profile, schedule(seed, profile) if steps is None else steps)


def _run(seed: int, profile: Profile, steps: Sequence[Step]) -> Counter[str]:
    world = World(seed, profile)
    world.moves = [ACTIONS[name] for name in profile.moves]
    try:
        for step in steps:
            world.seed(step.seed)
            try:
                ACTIONS[step.action](world, random.Random(step.seed))
            except TsdbError as error:
                raise Violation(f"{step}: {type(error).__name__}, {error.reason}: {error.message}") from error
            world.timer.fire()
        drain(world)
    finally:
        world.close()
    return world.counts


@contextmanager
def _quiet() -> Iterator[None]:
    """Switch logs off: every injected fault would be a line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def drain(world: World) -> None:
    """Faults end and all components go on: then everything is answered. Raises Violation."""
    world.log.faults = LogFaults()
    world.history.failing, world.history.series_share = 0.0, 1.0
    world.calm_groups()
    world.log.land()
    world.answer_requests()
    world.keep_owners()
    world.start_store(TIMES.least_hold_ms)
    if world.profile.lossy:
        repair(world, random.Random(0))
    refused = "never asked"
    for number in range(1, ROUNDS_MAX):
        world.round(maintain=number % MAINTAIN_EVERY == 0)
        if number % LOOK_EVERY == 0:
            refused = _refused(world)
            if not refused and not world.jobs.imports:
                return
            end_imports(world)
    raise Violation(f"a drained system refuses: {refused}; {world.where()}")


def _refused(world: World) -> str:
    now_ms = world.clock.now_ms()
    reads = [(service, now_ms - 4 * DAY_MS) for service in world.deep_queriers()]
    for service, start_ms in [*reads, (world.querier, now_ms - 3 * TIMES.window_ms)]:
        options = ReadOptions(allow_holes=world.has_losses)
        query = SelectQuery(EVERYTHING, start_ms, now_ms + TIMES.window_ms, options=options)
        refused = check_read(world, service, query, SELECTORS[EVERYTHING])
        if refused:
            return refused
    return ""


def failure_of(
    seed: int, profile: Profile = ALL, steps: Sequence[Step] | None = None, *, counts: Counter[str] | None = None
) -> Failure | None:
    """Run a schedule; the failure it causes, or None. counts: receives the events of the run."""
    chosen = tuple(schedule(seed, profile) if steps is None else steps)
    try:
        happened = run(seed, profile, chosen)
    except Exception as error:  # Every error of a component is a finding.
        return Failure(seed, profile.name, chosen, f"{type(error).__name__}: {error}")
    if counts is not None:
        counts.update(happened)
    return None


def shrunk(failure: Failure, profile: Profile, *, tries: int = 300) -> Failure:
    """The same failure with fewer steps: stretches are left out, ever shorter ones, while it still fails."""
    best, size = failure, max(len(failure.steps) // 2, 1)
    while tries > 0:
        at = 0
        while at < len(best.steps) and tries > 0:
            tries -= 1
            fewer = best.steps[:at] + best.steps[at + size :]
            found = failure_of(best.seed, profile, fewer)
            if found is not None:
                best = found
            else:
                at += size
        if size == 1:
            break
        size = max(size // 2, 1)
    return best
