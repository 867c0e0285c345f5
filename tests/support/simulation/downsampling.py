"""Downsampling in a simulation: the real job over rows in a list, and reads of derived series.

A step of a downsampled read is that of the samples, or of the samples that history had when a run derived it: the last
run that ended, or one since.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import Any, cast

from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.places import Places
from support.oracles.head_twin import STEP_RULES
from support.servers.queriers import select
from support.simulation.details import float_of
from support.simulation.jobs import calm, places_of
from support.simulation.oracle import Source, Violation, samples_of_chunk
from support.simulation.processes import meta_of
from support.simulation.reads import SELECTORS, refused, right_samples, stated_of
from support.simulation.times import DAY_MS, TIMES
from support.simulation.world import Derived, World
from support.spark.local_session import LocalSession
from tsdb.client import ReadOptions, SelectQuery
from tsdb.client.select import AGGREGATIONS
from tsdb.log.downsampled import read_downsampled
from tsdb.log.interface import Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.window import floor_to

JOB_WAITS_MS = 4_000


def downsample_on(world: World, rng: random.Random) -> None:
    """Run the job once. Chunk stage and loader run while it waits."""
    session = cast(Any, LocalSession(lambda: world.derived.append(Derived(_held(world)))))
    clock = cast(Clock, WaitingClock(world))
    places: Places = places_of(world)
    with calm(world):
        try:
            options = DownsampleOptions(loader_timeout_ms=JOB_WAITS_MS)
            done = downsample(session, places, meta_of(world.partitions), options, clock)
        except Unavailable as error:
            world.counts[f"refused: {error.reason}"] += 1
            return
        spans = read_downsampled(cast(Log, world.log))
    if done.ok and world.derived:
        newest = world.derived[-1]
        newest.end_ms = spans["5m"].end_ms
        del world.derived[:-1]
    world.counts["samples derived"] += done.samples_derived


def read_downsampled_on(world: World, rng: random.Random) -> None:
    """Read steps of the past, which derived series may answer."""
    old_ms = world.clock.now_ms() - DAY_MS - TIMES.least_hold_ms
    start_ms = floor_to(old_ms - rng.randint(0, 3 * TIMES.window_ms), 10_000)
    end_ms = start_ms + rng.choice([10_000, 40_000, 80_000])
    selector, agg = rng.choice(list(SELECTORS)), rng.choice(AGGREGATIONS)
    options = ReadOptions(allow_holes=world.has_losses)
    step_ms = rng.choice([1_000, 10_000, 20_000])
    query = SelectQuery(selector, start_ms, end_ms, step_ms=step_ms, agg=agg, downsampled=True, options=options)
    for store in world.stores:
        store.poll()
    before = list(world.derived)
    with world.moving(rng):
        try:
            result = select(world.querier, query, world.caller())
        except TsdbError as error:
            refused(world, query, error, allow_holes=options.allow_holes)
            return
    got: dict[int, dict[int, float]] = {
        one.series_id: dict(zip(one.ts_ms.tolist(), one.values.tolist(), strict=True)) for one in result.series
    }
    for state in result.partitions:
        now = right_samples(world, state.partition, query, stated_of(world, state, query), SELECTORS[selector])
        if now is None or state.holes:
            continue
        for source in filter(SELECTORS[selector], world.sources):
            if source.partition == state.partition:
                mine = now.get(source.series_id, {})
                right = [_steps(query, {at_ms: float_of(bits) for at_ms, bits in mine.items()})]
                right += [_steps(query, one.samples.get(source.series_id, {})) for one in (*before, *world.derived)]
                _check(world, query, source, got.get(source.series_id, {}), right)
    world.counts["downsampled reads"] += 1


def _check(
    world: World, query: SelectQuery, source: Source, shown: dict[int, float], right: list[dict[int, float]]
) -> None:
    for at_ms in shown.keys() | {at_ms for steps in right for at_ms in steps}:
        allowed = [steps.get(at_ms) for steps in right]
        got = shown.get(at_ms)
        if not any(_is_same(got, one) for one in allowed):
            raise Violation(f"{query}, {source.canonical!r} at {at_ms}: {got}, not one of {allowed}")
        world.counts["derived steps"] += got is not None


def _steps(query: SelectQuery, by_time: dict[int, float]) -> dict[int, float]:
    steps: defaultdict[int, list[float]] = defaultdict(list)
    for ts_ms in sorted(by_time):
        if query.start_ms <= ts_ms < query.end_ms:
            steps[query.start_ms + (ts_ms - query.start_ms) // query.step_ms * query.step_ms].append(by_time[ts_ms])
    rule = STEP_RULES[1 + AGGREGATIONS.index(query.agg or "")]
    return {at_ms: rule(values) for at_ms, values in steps.items()}


def _is_same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9)


def _held(world: World) -> dict[int, dict[int, float]]:
    """The samples of history now, by series and time."""
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for source in world.sources:
        for value in world.history.rows.get(source.pack_id, {}).values():
            for place, found in samples_of_chunk(value).items():
                best[place] = max(found, best.get(place, found))
    found_: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for (series, ts_ms), (_, bits) in best.items():
        found_[series][ts_ms] = float_of(bits)
    return found_


class WaitingClock:
    """The clock of a job: while it sleeps, chunk stage and loader go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.now_ms = world.clock.now_ms
        self.monotonic = world.clock.monotonic

    def sleep(self, seconds: float) -> None:
        """Let components go on for that long."""
        self._world.work()
        self._world.clock.sleep(seconds)
