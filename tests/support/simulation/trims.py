"""Retention and compaction of a simulated log, as far as the design allows them before readers have read."""

from __future__ import annotations

import random

from chunker.repair import diagnose
from chunker.repair import repair as repair_all
from chunker.takeover import highest_marker
from support.simulation.groups import Member
from support.simulation.log import LogFaults
from support.simulation.processes import SimulatedChunker
from support.simulation.times import TIMES
from support.simulation.world import CHUNKERS, LOADERS, World
from tsdb.log.interface import CHUNKS, METRICS, SERIES

FINISH_ROUNDS = 10  # A round sends a pack of a window, or its markers.


def trim(world: World, rng: random.Random) -> None:
    """Remove old records from the log: records that neither the chunk stage nor an open window needs, or any records if
    lossy.
    """
    partition = rng.randrange(world.partitions)
    low = _trimmable(world, partition)
    if world.profile.lossy and rng.random() < 0.5:
        low = rng.randint(0, world.log.stretches[METRICS, partition].high)
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
    """Compact `chunks` and `series` below the position of every loader that continues from its commits."""
    topic = rng.choice([CHUNKS, CHUNKS, SERIES])
    partition = rng.randrange(world.partitions)
    if topic == CHUNKS and (METRICS, partition) not in world.groups[CHUNKERS].committed:
        return  # The next take-over needs the highest progress marker; a zombie's lower one may be newer.
    if world.went_back:
        return  # Loaders read the topics again from lower offsets.
    below = _passed(world, topic, partition)
    world.log.compact(topic, partition, below)
    world.compacted[topic, partition] = max(below, world.compacted[topic, partition])
    world.counts["compacted"] += 1


def _passed(world: World, topic: str, partition: int) -> int:
    high = world.log.stretches[topic, partition].high
    if (world.log.topic_id(METRICS), partition) not in world.history.loaded_rows:
        # The next loader starts from zero. A load from zero that is already running must end without more compaction.
        return 0 if world.loaders else high
    committed = world.groups[LOADERS].committed.get((topic, partition))
    return committed.next_offset if committed else 0


def repair(world: World, rng: random.Random) -> None:
    """Accept, as an operator does, the gaps that keep the chunk stage from its start."""
    for chunker in world.chunkers:
        chunker.close()
    world.chunkers.clear()
    faults, world.log.faults = world.log.faults, LogFaults()
    group = world.groups[CHUNKERS]
    refused, group.refused, group.lost_ack = group.refused, 0.0, 0.0
    committed = Member(group).committed([(METRICS, number) for number in range(world.partitions)])
    problems = [diagnose(world.log, number, at, TIMES) for (_, number), at in committed.items()]
    known = [problem for problem in problems if problem is not None]
    if known:
        repair_all(world.log, Member(group), known, TIMES, world.clock)
        world.counts["repaired"] += len(known)
    world.log.faults, group.refused, group.lost_ack = faults, refused, refused
    world.start_chunker()


def forget_commits(world: World, rng: random.Random) -> None:
    """The chunk stage's group is deleted, or its commits expire: progress markers take their place.

    A zombie that was suspended goes on before: its marker is the newest, and may be far below its successor's.
    """
    group = world.groups[CHUNKERS]
    for (_, partition), position in group.committed.items():
        marker = highest_marker(world.log, partition, world.log.topic_id(METRICS))
        behind = marker is None or marker.position < position.next_offset
        if behind and world.log.stretches[METRICS, partition].low:
            # Compaction kept only the marker of a zombie, so records that the log has lost since would be a gap.
            return
    for zombie in world.zombies():
        _finish(world, zombie)
    for chunker in world.chunkers:
        chunker.close()
    world.chunkers.clear()
    group.committed.clear()
    world.start_chunker()


def _finish(world: World, zombie: SimulatedChunker) -> None:
    """Let a zombie finish its work, up to a marker and a commit that is refused."""
    for _ in range(FINISH_ROUNDS):
        zombie.work()
        world.log.answer()
