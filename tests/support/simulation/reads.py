"""Executes the reads of a simulation, moves components in the middle of them, and compares each answer with
the oracle.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from support.oracles.head_twin import STEP_RULES
from support.servers.queriers import querier_over, select
from support.simulation.details import float_of, identities, is_histogram
from support.simulation.oracle import Answered, Source, Violation, check_samples, excused_by
from support.simulation.processes import KnownStores, SimulatedStore, WatchedStore
from support.simulation.times import DAY_MS, TIMES
from support.simulation.world import World
from tsdb.client import ReadOptions, SelectQuery, SelectResult
from tsdb.client.select import AGGREGATIONS
from tsdb.log.interface import METRICS
from tsdb.model.errors import CorruptData, HoleInRange, TsdbError
from tsdb.model.window import floor_to
from tsdb.query.service import QuerierService
from tsdb.v1 import common_pb2

EVERYTHING = '{job="sim"}'
SELECTORS: dict[str, Callable[[Source], bool]] = {
    EVERYTHING: lambda source: True,
    "m0": lambda source: b"m0" in source.canonical,
    'm1{instance="0"}': lambda source: b"m1" in source.canonical and b"instance\xff0\xff" in source.canonical,
}
EVER_MS = 1 << 40
HISTOGRAMS = "native_histograms"  # The reason of a refusal.


def read(world: World, rng: random.Random) -> None:
    """One read through the querier."""
    start_ms, end_ms = range_of(world, rng)
    selector = rng.choice(list(SELECTORS))
    query = SelectQuery(selector, start_ms, end_ms)
    kind = rng.choice(world.profile.kinds)
    if kind == "columns":
        query = replace(query, encoding="columns")
    elif kind == "last":
        query = replace(query, last_n=rng.randint(1, 3))
    elif kind == "steps" and end_ms - start_ms < DAY_MS:
        step_ms = rng.choice([130, 1_000, 7_000])
        if world.profile.edges and rng.random() < world.profile.edges:
            query = replace(query, start_ms=_aligned(world, rng, step_ms) or start_ms)
        query = replace(query, step_ms=step_ms, agg=rng.choice(AGGREGATIONS))
    query = replace(query, options=options_of(world, rng))
    for store in world.stores:
        store.poll()
    with world.moving(rng):
        check_read(world, rng.choice(list(world.queriers())), query, SELECTORS[selector])


def options_of(world: World, rng: random.Random) -> ReadOptions:
    """At times a read asks for the records of a write; with losses it accepts holes as often as not."""
    tokens: list[common_pb2.Token] = []
    accepted = [one.answer for one in world.requests[-6:] if one.answer.done() and one.answer.exception() is None]
    if accepted and world.profile.after and rng.random() < world.profile.after:
        tokens = [
            common_pb2.Token(
                topic_id=world.log.topic_id(METRICS), partition=token.partition, record_offset=token.record_offset
            )
            for token in rng.choice(accepted).result().tokens
        ]
    return ReadOptions(after=tokens, allow_holes=world.allows_holes(rng))


def asked_offset(options: ReadOptions | None, partition: int) -> int:
    """The highest record of a partition that a read asked for, or -1."""
    return (
        max((one.record_offset for one in options.after if one.partition == partition), default=-1) if options else -1
    )


def refused(world: World, request: object, error: TsdbError, *, allow_holes: bool = False) -> None:
    """Raises Violation for a refusal without a cause."""
    world.counts[f"refused: {error.reason}"] += 1
    if error.reason == HISTOGRAMS and not _has_histograms(world, request):
        raise Violation(f"no histogram is in the range of {request}, which is refused: {error.message}") from error
    hole = isinstance(error, HoleInRange) and (allow_holes or not world.has_losses)
    if isinstance(error, CorruptData) or hole:
        raise Violation(f"nothing is corrupt or lost, but {request} gets {error.reason}: {error.message}") from error


def _has_histograms(world: World, request: object) -> bool:
    if not isinstance(request, SelectQuery) or not request.step_ms:
        return False
    assert isinstance(request.selector, str)
    wanted = SELECTORS[request.selector]
    return any(
        is_histogram(entry.bits)
        for of_partition in world.oracle.entries.values()
        for series, by_time in of_partition.items()
        if wanted(world.oracle.sources[series])
        for ts_ms, entries in by_time.items()
        if request.start_ms <= ts_ms < request.end_ms
        for entry in entries
    )


def read_stores(world: World, rng: random.Random) -> None:
    """Execute the read on two stores without history. Stores that have applied the same records answer equal bytes."""
    start_ms, end_ms = range_of(world, rng)
    query = SelectQuery(EVERYTHING, start_ms, end_ms)
    answers: dict[tuple[tuple[int, int], ...], bytes] = {}
    for store in world.stores:
        store.poll()
        service = store_querier(world, store)
        check_read(world, service, query, SELECTORS[EVERYTHING])
        try:
            result = select(service, query)
        except TsdbError:
            continue
        columns = (result.series_ids, result.starts, result.ts_ms)
        samples = identities(result.values, result.details)
        payload = b"".join([*(column.tobytes() for column in columns), str(samples).encode()])
        before = answers.setdefault(tuple(store.next_offsets.items()), payload)
        if before != payload:
            raise Violation(f"two stores at {store.next_offsets} answer [{start_ms}, {end_ms}) with other bytes")


def store_querier(world: World, store: SimulatedStore) -> QuerierService:
    """A querier that has this store alone and no history."""
    stores = KnownStores()
    stores.watched.append(WatchedStore(store, lambda kind: None))
    topic_id = world.log.topic_id(METRICS)
    return querier_over(stores, None, window_ms=TIMES.window_ms, partitions=world.partitions, topic_id=topic_id)


def _coverages(world: World) -> list[int]:
    return [one.head.state().coverage_start_ms for store in world.stores for one in store.store.partitions.values()]


def _aligned(world: World, rng: random.Random, step_ms: int) -> int | None:
    """A start below coverage, with a sample in the last millisecond before the first step that a store aggregates."""
    coverage_ms = rng.choice(_coverages(world))
    times_ms = [
        ts_ms
        for of_partition in world.oracle.entries.values()
        for by_time in of_partition.values()
        for ts_ms in by_time
        if coverage_ms <= ts_ms < coverage_ms + step_ms
    ]
    return rng.choice(times_ms) + 1 - rng.randint(2, 4) * step_ms if times_ms else None


def range_of(world: World, rng: random.Random) -> tuple[int, int]:
    """(start, end) of a read, ms; each lies near a time at which the right answer changes its source."""
    now_ms = world.clock.now_ms()
    edges = [now_ms - rng.randint(0, 8 * TIMES.window_ms), now_ms + TIMES.window_ms]
    edges += _coverages(world)
    for loaded in world.history.loaded_rows.values():
        edges.append(loaded.emitted_through_ms)
    edges += [floor_to(now_ms, TIMES.window_ms) - k * TIMES.window_ms for k in range(5)]
    edges.append(now_ms - DAY_MS - TIMES.least_hold_ms - rng.randint(0, 3 * TIMES.window_ms))
    if world.profile.edges and rng.random() < world.profile.edges / 2:
        return rng.choice(_coverages(world)) - rng.choice([0, 1]), now_ms + TIMES.window_ms
    start_ms = (0 if rng.random() < 0.25 else rng.choice(edges)) + rng.choice([-1, 0, 1, 200])
    end_ms = (EVER_MS * 2 if rng.random() < 0.25 else rng.choice(edges)) + rng.choice([-1, 0, 1, 200])
    # Steps and epochs of a range without end are too many.
    start_ms, end_ms = max(start_ms, now_ms - 4 * DAY_MS), min(end_ms, now_ms + TIMES.window_ms)
    return (start_ms, end_ms) if start_ms < end_ms else (end_ms, start_ms + 1)


def check_read(world: World, service: QuerierService, query: SelectQuery, wanted: Callable[[Source], bool]) -> str:
    """Raises Violation unless the answer is the oracle's or a refusal. Returns the reason of a refusal, or ""."""
    try:
        result = select(service, query, world.caller())
    except TsdbError as error:
        refused(world, query, error, allow_holes=query.options is not None and query.options.allow_holes)
        return error.reason
    world.counts["answered"] += 1
    world.counts["with history"] += any(not stated_of(world, state, query).alone for state in result.partitions)
    plain = not query.step_ms and not query.last_n
    if plain:
        check_result(world, query, result, wanted)
    else:
        _check_reduced(world, query, result, wanted)
    return ""


def check_result(world: World, query: SelectQuery, result: SelectResult, wanted: Callable[[Source], bool]) -> bool:
    """Raises Violation unless samples are the oracle's; whether there was only one answer."""
    got = _by_partition(world, result)
    only = True
    if {state.partition for state in result.partitions} != set(range(world.partitions)):
        raise Violation(f"{query} is answered for partitions {[state.partition for state in result.partitions]}")
    for state in result.partitions:
        stated, range_ms = stated_of(world, state, query), (query.start_ms, query.end_ms)
        named = state.holes if query.options is not None and query.options.allow_holes else ()
        world.check_holes_named(state, range_ms, stated, named)
        mine, excused = got[state.partition], excused_by(named)
        only &= check_samples(world.oracle, state.partition, range_ms, mine, stated, wanted, excused)
    return only


def stated_of(world: World, state: common_pb2.PartitionState, query: SelectQuery) -> Answered:
    """The state of one partition in an answer."""
    return Answered.of(state, query.start_ms, asked_offset(query.options, state.partition), moved=world.moved)


def _by_partition(world: World, result: SelectResult) -> dict[int, dict[int, dict[int, int]]]:
    got: dict[int, dict[int, dict[int, int]]] = defaultdict(dict)
    bits = identities(result.values, result.details)
    if result.details is not None:
        world.counts["histograms answered"] += sum(map(is_histogram, bits))
        starts = result.details.start_ms
        world.counts["start timestamps answered"] += 0 if starts is None else int(np.count_nonzero(starts))
    for number, series in enumerate(result.series):
        source = world.oracle.sources.get(series.series_id)
        if source is None or source.canonical != series.canonical:
            raise Violation(f"series {series.series_id} {series.canonical!r} is answered, which nobody wrote")
        if not (np.diff(series.ts_ms) > 0).all():
            raise Violation(f"times of series {series.series_id} do not ascend")
        mine = bits[result.starts[number] : result.starts[number + 1]]
        got[source.partition][series.series_id] = dict(zip(series.ts_ms.tolist(), mine, strict=True))
    return got


def _check_reduced(world: World, query: SelectQuery, result: SelectResult, wanted: Callable[[Source], bool]) -> None:
    """Steps and newest samples, where the oracle has only one answer."""
    got = _by_partition(world, result)
    for state in result.partitions:
        stated = stated_of(world, state, query)
        want = None if state.holes else right_samples(world, state.partition, query, stated, wanted)
        if want is None:
            continue
        check = _check_newest if query.last_n else _check_steps
        check(query, {number: by_time for number, by_time in want.items() if by_time}, got[state.partition])


Samples = dict[int, dict[int, int]]
"""Identities by series and time."""


def _check_newest(query: SelectQuery, want: Samples, got: Samples) -> None:
    newest = {number: dict(list(by_time.items())[-query.last_n :]) for number, by_time in want.items()}
    if newest != got:
        raise Violation(f"{query}: {got}, not {newest}")


def _check_steps(query: SelectQuery, want: Samples, got: Samples) -> None:
    if want.keys() != got.keys():
        raise Violation(f"{query} has series {set(got)}, not {set(want)}")
    for number, by_time in want.items():
        if any(map(is_histogram, by_time.values())):
            raise Violation(f"{query} answers steps of series {number}, which has histograms")
        steps = _steps(query, by_time)
        found = {at_ms: float_of(bits) for at_ms, bits in got[number].items()}
        same = np.array_equal(np.array([*found.values()]), np.array([*steps.values()]), equal_nan=True)
        if list(found) != list(steps) or not same:
            raise Violation(f"{query}, series {number}: {found}, not {steps}")


def right_samples(
    world: World,
    partition: int,
    query: SelectQuery,
    stated: Answered,
    wanted: Callable[[Source], bool],
) -> dict[int, dict[int, int]] | None:
    """The identities of the samples of each series; None where more than one answer is right."""
    found: dict[int, dict[int, int]] = {}
    for number, source in world.oracle.sources.items():
        if source.partition != partition or not wanted(source):
            continue
        mine = found[number] = {}
        for ts_ms in sorted(world.oracle.entries[partition][number]):
            if query.start_ms <= ts_ms < query.end_ms:
                bits, absent = world.oracle.allowed(
                    partition, number, ts_ms, stated.applied_offset, newer=stated.moved or not stated.alone
                )
                if len(bits) + absent > 1:
                    return None
                if bits:
                    mine[ts_ms] = bits.pop()
    return found


def _steps(query: SelectQuery, by_time: dict[int, int]) -> dict[int, float]:
    steps: dict[int, list[float]] = {}
    for ts_ms, bits in by_time.items():
        at_ms = query.start_ms + (ts_ms - query.start_ms) // query.step_ms * query.step_ms
        steps.setdefault(at_ms, []).append(float_of(bits))
    rule = STEP_RULES[1 + AGGREGATIONS.index(query.agg or "")]
    return {at_ms: rule(values) for at_ms, values in steps.items()}
