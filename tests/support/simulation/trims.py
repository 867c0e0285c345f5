"""Retention and compaction of a simulated log, as far as the design lets them go before somebody has read."""

from __future__ import annotations

import random

from support.simulation.times import TIMES
from support.simulation.world import CHUNKERS, LOADERS, World
from tsdb.log.interface import CHUNKS, METRICS, SERIES


def trim(world: World, rng: random.Random) -> None:
    """The log loses what is old: at most what neither the chunk stage nor windows that are open need."""
    partition = rng.randrange(world.partitions)
    low = _trimmable(world, partition)
    if low:
        offset = rng.choice([low, low, rng.randint(0, low)])
        world.log.trim(METRICS, partition, offset)
        world.counts["trimmed"] += 1


def _trimmable(world: World, partition: int) -> int:
    """The highest offset that may be the first retained, or one in the gap before it."""
    position = world.groups[CHUNKERS].committed.get((METRICS, partition))
    if position is None:
        return 0
    _, _, emitted_ms, whole_ms, _ = position.metadata.split(" ")
    whole_ms_needed = max(int(emitted_ms), int(whole_ms)) - 2 * TIMES.ahead_ms
    found = 0
    for record in world.log.records(METRICS, partition):
        if record.offset >= position.next_offset or record.broker_ms > whole_ms_needed:
            break
        found = record.offset
    return found


def compact(world: World, rng: random.Random) -> None:
    """`chunks` and `series` are compacted below what every loader that goes on from its commits has passed."""
    topic = rng.choice([CHUNKS, CHUNKS, SERIES])
    partition = rng.randrange(world.partitions)
    world.log.compact(topic, partition, _passed(world, topic, partition))
    world.counts["compacted"] += 1


def _passed(world: World, topic: str, partition: int) -> int:
    high = world.log.stretches[topic, partition].high
    if (world.log.topic_id(METRICS), partition) not in world.history.loaded_rows:
        # The next loader starts from zero. One that does already has to come to its end without more compaction.
        return 0 if world.loaders else high
    committed = world.groups[LOADERS].committed.get((topic, partition))
    return committed.next_offset if committed else 0
