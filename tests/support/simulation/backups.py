"""Backups of a simulation: written part by part while components go on, interrupted, resumed, and restored."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

from support.simulation.jobs import calm, read_back
from support.simulation.processes import meta_of
from support.simulation.world import LOADERS, World
from tsdb.backup.backup import BackupSource, back_up
from tsdb.backup.checks import check_files, read_manifest
from tsdb.backup.folder import BackupFolder
from tsdb.backup.restore import TABLES, RestoreTarget, check_restore, restore_progress, restore_rows
from tsdb.history.interface import ChunkStore
from tsdb.history.shared_settings import HistoryAdmin, shared_rows
from tsdb.log.interface import CHUNKS, SERIES, Log
from tsdb.log.meta import ensure_meta
from tsdb.log.topics import TopicAdmin
from tsdb.model.errors import InvalidRequest

PARTS = 8
COMPACTION_LAG_MS = 1 << 40  # Longer than any schedule; `compact` decides which records are compacted.


class Interrupted(Exception):
    """A backup is killed."""


class SimulatedAdmin:
    """tsdb.history.shared_settings.HistoryAdmin of a history that is as it must be."""

    def __init__(self, partitions: int) -> None:
        self._rows = shared_rows(meta_of(partitions))

    def differences(self) -> list[str]:
        return []

    def shared(self) -> dict[str, str]:
        return self._rows


def backup(world: World, rng: random.Random) -> None:
    """Write some parts of a backup, with steps of components between them. An interrupted backup is resumed."""
    with calm(world):
        ensure_meta(cast(Log, world.log), meta_of(world.partitions))
        if world.backup_folder is None:
            world.backup_folder = world.new_folder()
        folder = BackupFolder(str(world.backup_folder))
        left = rng.choice([0, 2, 4, PARTS, PARTS, PARTS, PARTS])

        def advance(parts: int) -> None:
            nonlocal left
            left -= parts
            if left < 0:
                raise Interrupted
            if rng.random() < world.profile.busy:
                rng.choice(world.moves)(world, rng)

        try:
            back_up(folder, _source(world), world.clock, topics=(), advance=advance)
        except Interrupted:
            world.counts["backups interrupted"] += 1
            return
        except InvalidRequest as error:
            # History was emptied or restored since it began.
            world.counts[f"refused: {error.reason}"] += 1
            world.backup_folder = None
            return
        world.backups.append(world.backup_folder)
        world.backup_folder = None
        world.counts["backups"] += 1


def restore(world: World, rng: random.Random) -> None:
    """History is lost, and restored from a backup, at times not to the end."""
    if not world.backups:
        return
    folder = BackupFolder(str(rng.choice(world.backups)))
    manifest = read_manifest(folder)
    for loader in world.loaders:
        loader.kill()
    world.loaders.clear()
    world.history.empty()
    with calm(world), _answering(world):
        target = _target(world)
        positions = manifest.plan.positions
        compacted = any(
            (at := getattr(positions[number], topic)) is not None and at.next_offset < world.compacted[topic, number]
            for topic in (CHUNKS, SERIES)
            for number in positions
        )
        from_zero = compacted or rng.random() < 0.2
        check_restore(manifest, target, world.clock.now_ms(), from_zero=from_zero)
        check_files(folder, manifest.of(*TABLES), _nothing)
        restore_rows(folder, manifest, target.store, world.clock, _nothing)
        if not from_zero and rng.random() < 0.9:
            restore_progress(manifest, target, world.clock)
    world.went_back = True
    world.counts["restored"] += 1
    for job in world.jobs.ended[-3:]:
        read_back(world, job)


@contextmanager
def _answering(world: World) -> Iterator[None]:
    """Statements and commits are answered at once: a restore tries again for as long as it takes."""
    group = world.groups[LOADERS]
    faults = group.refused, group.lost_ack
    group.refused, group.lost_ack, world.history.at_once = 0.0, 0.0, True
    try:
        yield
    finally:
        (group.refused, group.lost_ack), world.history.at_once = faults, False


def _source(world: World) -> BackupSource:
    admin = cast(HistoryAdmin, SimulatedAdmin(world.partitions))
    return BackupSource(cast(Log, world.log), cast(ChunkStore, world.history), admin, LOADERS)


def _target(world: World) -> RestoreTarget:
    source = _source(world)
    config: Mapping[str, str] = {"min.compaction.lag.ms": str(COMPACTION_LAG_MS)}
    topics = SimpleNamespace(describe=lambda topic: SimpleNamespace(config=config))
    return RestoreTarget(source.store, source.admin, source.log, cast(TopicAdmin, topics), LOADERS)


def _nothing(size: int) -> None:
    """Nobody looks at the progress."""
