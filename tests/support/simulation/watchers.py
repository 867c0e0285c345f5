"""Watchers of a simulation: live tails that are cut off and resume. Each gets every sample of its series once, in the
order of the log, from the record after which it began.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import cast

from support.servers.queriers import context
from support.simulation.details import identities
from support.simulation.oracle import Sample, Violation
from support.simulation.reads import SELECTORS
from support.simulation.world import Watcher, World
from tsdb.client.watch import WatchState
from tsdb.model.errors import OutOfCoverage, TsdbError
from tsdb.query.service import QuerierService
from tsdb.store.service import ReaderService
from tsdb.v1 import reader_pb2

WATCHERS_MAX = 3
MESSAGES_MAX = 12


def watch(world: World, rng: random.Random) -> None:
    """One connection of a watcher: it begins or resumes, takes some messages, and is cut off."""
    for store in world.stores:
        store.poll()
    if len(world.watchers) < WATCHERS_MAX and (not world.watchers or rng.random() < 0.3):
        world.watchers.append(_begin(world, rng))
    watcher = rng.choice(world.watchers)
    try:
        _follow(world, rng, watcher)
    except OutOfCoverage as error:
        # The ring no longer has the resume point. The watcher knows the missed samples, and begins again.
        world.counts[f"refused: {error.reason}"] += 1
        world.watchers.remove(watcher)
    except TsdbError as error:
        world.counts[f"refused: {error.reason}"] += 1


def _begin(world: World, rng: random.Random) -> Watcher:
    partitions = tuple(sorted(rng.sample(range(world.partitions), rng.randint(1, world.partitions))))
    selector = rng.choice(list(SELECTORS))
    state = WatchState(selector, partitions)
    store = rng.choice(world.stores).service
    state.begin(store.Coverage(reader_pb2.CoverageRequest(), context()).partitions)
    return Watcher(selector, partitions, state)


def _follow(world: World, rng: random.Random, watcher: Watcher) -> None:
    # Streams of several stores need threads: a querier is asked for one partition.
    service: QuerierService | ReaderService = rng.choice(world.stores).service
    if len(watcher.partitions) == 1 and rng.random() < 0.7:
        service = world.querier
    messages = cast(Generator[reader_pb2.WatchResponse], service.Watch(watcher.state.request(), context()))
    quiet: set[int] = set()
    try:
        for _ in range(rng.randint(1, MESSAGES_MAX)):
            message = next(messages)
            before = {token.partition: token.record_offset for token in watcher.state.tokens}
            _check(world, watcher, before[message.partition], message)
            quiet.add(message.partition) if not message.ts_ms else quiet.clear()
            if quiet == set(watcher.partitions):
                break
    finally:
        messages.close()


def _check(world: World, watcher: Watcher, after_offset: int, message: reader_pb2.WatchResponse) -> None:
    """The samples of the records (after_offset, last_record_offset], each once."""
    batch = watcher.state.add(message)
    got: dict[int, list[Sample]] = {}
    if batch is not None:
        rows = zip(
            batch.record_offsets.tolist(),
            batch.series_ids.tolist(),
            batch.ts_ms.tolist(),
            identities(batch.values, batch.details),
            strict=True,
        )
        offsets = batch.record_offsets.tolist()
        if offsets != sorted(offsets):
            raise Violation(f"a watcher gets records in the order {offsets}")
        for record_offset, *sample in rows:
            if not _is_forgotten(world, sample[0]):
                got.setdefault(record_offset, []).append(tuple(sample))
    want = _records(world, watcher, message.partition, after_offset, message.last_record_offset)
    if {at: sorted(samples) for at, samples in got.items()} != want:
        raise Violation(
            f"a watcher of {watcher.selector} in partition {message.partition} gets {got} for records past"
            f" {after_offset} up to {message.last_record_offset}, not {want}"
        )
    world.counts["watched"] += len(got)


def _records(
    world: World, watcher: Watcher, partition: int, after_offset: int, last_offset: int
) -> dict[int, list[Sample]]:
    wanted = SELECTORS[watcher.selector]
    found: dict[int, list[Sample]] = {}
    for offset, samples in world.oracle.records[partition]:
        if after_offset < offset <= last_offset:
            mine = sorted(
                sample
                for sample in samples
                if wanted(world.oracle.sources[sample[0]]) and not _is_forgotten(world, sample[0])
            )
            if mine:
                found[offset] = mine
    return found


def _is_forgotten(world: World, series: int) -> bool:
    """A store that does not know a series has no labels to match."""
    return world.oracle.sources[series].pack_id in world.forgotten
