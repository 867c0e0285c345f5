"""Batch jobs of a simulation: rebuilds, imports, folds by the functions that Spark's tasks run, a phase at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import cast

import numpy as np

from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import items_of, plan_partitions
from spark_backfill.jobs.merge_late.plan import Rule, WindowPlan, plan_window
from spark_backfill.jobs.merge_late.read_backs import Fold, ReadBacks, broker_now_ms
from spark_backfill.jobs.merge_late.work import delete_rows, fold_windows, look_again
from spark_backfill.jobs.rebuild.job import RecordFilter
from spark_backfill.jobs.rebuild.job import _write as write
from spark_backfill.places import Places
from spark_backfill.worker_log import close_worker_log
from spark_backfill.writing.chunk_writer import ChunkWriter
from spark_backfill.writing.fragments import SortedRows
from spark_backfill.writing.import_run import begin_run
from spark_backfill.writing.loader_wait import JobEnds, _behind, wait_until_seen
from support.simulation.history import SimulatedHistory
from support.simulation.job_state import DELETE_AFTER_MS, FoldJob, ImportJob
from support.simulation.log import LogFaults, SimulatedLog
from support.simulation.oracle import Entry, Source
from support.simulation.reads import EVERYTHING, SELECTORS, check_read
from support.simulation.times import SLICES, TIMES
from support.simulation.world import World
from tsdb.chunks.late_scan import Windows
from tsdb.client import ReadOptions, SelectQuery
from tsdb.codec.records.log_record import encode_tick
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.interface import ChunkStore, WindowRange
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.model.errors import InvalidRequest, LostOffsets, Unavailable
from tsdb.model.window import floor_to, index_epoch

FRAGMENTS_MAX = 2
EVER = WindowRange(-(1 << 60), 1 << 60)


class SimulatedPlaces:
    """spark_backfill.places.Places over the world's log and history."""

    def __init__(self, log: SimulatedLog, history: SimulatedHistory) -> None:
        self._log = log
        self._history = history

    def open_log(self) -> SimulatedLog:
        return self._log

    def open_history(self) -> SimulatedHistory:
        return self._history


def places_of(world: World) -> Places:
    """The simulated places, with the type that jobs expect."""
    return cast(Places, SimulatedPlaces(world.log, world.history))


@contextmanager
def calm(world: World) -> Iterator[None]:
    """A job's tasks try again for as long as it takes: without faults they need no time."""
    faults, world.log.faults = world.log.faults, LogFaults(back_ms=world.log.faults.back_ms)
    moves, world.history.before_read = world.history.before_read, lambda kind: None
    try:
        yield
    finally:
        world.log.faults, world.history.before_read = faults, moves


def rebuild(world: World, rng: random.Random) -> None:
    """Rebuild some windows out of the log by the functions of the job: the same keys, the same bytes."""
    now_ms = floor_to(world.clock.now_ms(), TIMES.window_ms)
    end_ms = now_ms - rng.choice([0, 0, 1, 2]) * TIMES.window_ms
    windows = Windows(end_ms - rng.randint(1, 3) * TIMES.window_ms, end_ms)
    with calm(world):
        topic_id = world.log.topic_id(METRICS)
        options = BuildOptions(places_of(world), topic_id, TIMES, SLICES, part_bytes_max=world.part_bytes_max)
        log = cast(Log, world.log)
        try:
            items = list(items_of(log, plan_partitions(log, windows, TIMES), windows, TIMES))
            rng.shuffle(items)
            # A task may fail after some of its items.
            counts = list(write(options, RecordFilter(), None, items[: rng.randint(1, 9)]))
        except (LostOffsets, InvalidRequest) as error:
            world.counts[f"refused: {error.reason}"] += 1
            return
        finally:
            close_worker_log()
    world.counts["chunks rebuilt"] += sum(one.base_chunks + one.late_chunks for one in counts)


def import_on(world: World, rng: random.Random) -> None:
    """Begin an import, or end one whose records the loader has passed."""
    with calm(world):
        world.load(rng.choice([0, 10]))
        if not end_imports(world) and len(world.jobs.imports) < 2:
            world.jobs.imports.append(_begin_import(world, rng))


def end_imports(world: World) -> int:
    """End the imports whose records the loader has passed, and check that history has all that they wrote. Returns
    their number.
    """
    ended = 0
    for job in list(world.jobs.imports):
        read_back(world, job)
        try:
            wait_until_seen(world.log, range(world.partitions), job.run.job_id, 0.0, world.clock)
        except Unavailable:
            continue
        world.jobs.imports.remove(job)
        for entry in job.entries:
            entry.sure = True
        ended += 1
        world.jobs.ended.append(job)
        read_back(world, job)
    world.counts["imported"] += ended
    return ended


def read_back(world: World, job: ImportJob) -> None:
    """Read the samples of an import. Before its end history may have any part of them, and a querier that reads then
    keeps an index.
    """
    times_ms = [ts_ms for _, ts_ms in job.samples]
    query = SelectQuery(EVERYTHING, min(times_ms), max(times_ms) + 1, options=ReadOptions(allow_holes=world.has_losses))
    check_read(world, world.querier, query, SELECTORS[EVERYTHING])


def _begin_import(world: World, rng: random.Random) -> ImportJob:
    run = begin_run(world.log, f"job-{rng.randrange(1 << 40)}", range(world.partitions), "all", world.clock)
    end_ms = run.end_ms(TIMES)
    samples: dict[tuple[int, int], float] = {}
    for number in rng.sample(range(len(world.sources)), rng.randint(1, 3)):
        for _ in range(rng.randint(1, 5)):
            world.values += 1
            samples[number, end_ms - 1 - rng.choice([0, 1, 499, rng.randint(0, 60_000)])] = float(world.values)
    entries = []
    for (number, ts_ms), value in samples.items():
        source = world.sources[number]
        entry = Entry(run.orders[source.partition], int(np.float64(value).view(np.int64)), sure=False)
        world.oracle.add(source.partition, source.series_id, ts_ms, entry)
        entries.append(entry)
        _announce(world, source, ts_ms)
    ChunkWriter(places_of(world), run.orders, TIMES.window_ms, world.part_bytes_max).write(_rows(world, samples))
    return ImportJob(run, entries, list(samples))


def _announce(world: World, source: Source, ts_ms: int) -> None:
    epoch = index_epoch(source.series_id, ts_ms)
    key, value = encode_announcement(source.series_id, epoch, source.pack_id, source.canonical)
    world.log.append_sync(SERIES, source.partition, value, key=key)


def _rows(world: World, samples: dict[tuple[int, int], float]) -> list[SortedRows]:
    def rank(place: tuple[int, int]) -> tuple[int, int, int, int, int]:
        source = world.sources[place[0]]
        return source.partition, source.pack_id, floor_to(place[1], TIMES.window_ms), source.series_id, place[1]

    places = sorted(samples, key=rank)
    ranks = list(zip(*map(rank, places), strict=True))
    return [
        SortedRows(
            np.array(ranks[0], np.int32),
            np.array(ranks[1], np.uint64),
            np.array(ranks[2], np.int64),
            np.zeros(len(places), np.int32),
            np.array(ranks[3], np.uint64),
            np.array(ranks[4], np.int64),
            np.array([samples[place] for place in places], np.float64),
        )
    ]


def fold_on(world: World, rng: random.Random) -> None:
    """Run merge-late as far as the loader lets it: first until folds are written, then until they were read back."""
    with calm(world):
        world.load(rng.choice([0, 10]))
        if world.jobs.fold is None:
            if not _behind(world.log, JobEnds.of(world.log, range(world.partitions))):
                world.jobs.fold = _fold(world)
        elif not _behind(world.log, world.jobs.fold.ends):
            again = list(look_again(places_of(world), _rule(world, frozenset()), world.jobs.fold.plans))
            ReadBacks.read(world.log).note(world.log, _seen(again))
            world.jobs.fold = None
            world.counts["folded"] += 1


def _fold(world: World) -> FoldJob:
    log, places = world.log, places_of(world)
    now_ms = broker_now_ms(log)
    notes = ReadBacks.read(log)
    rule = _rule(world, notes.before(now_ms - DELETE_AFTER_MS))
    plans = list(_plans(world, rule))
    notes.note(log, _seen(plans))
    world.counts["rows deleted"] += sum(done.deleted for done in delete_rows(places, plans))
    folding = [plan for plan in plans if plan.fold]
    orders = {
        partition: log.append_sync(METRICS, partition, encode_tick()).offset
        for partition in sorted({plan.partition for plan in folding})
    }
    world.counts["windows folded"] += sum(done.folded for done in fold_windows(places, rule, orders, folding))
    return FoldJob([plan for plan in plans if not plan.idle], JobEnds.of(log, range(world.partitions)))


def _rule(world: World, deletable: frozenset[Fold]) -> Rule:
    old_ms = world.clock.now_ms() - 10 * TIMES.window_ms
    rule = Rule(EVER, TIMES.window_ms, world.part_bytes_max, FRAGMENTS_MAX, old_ms)
    return replace(rule, deletable=deletable, part_bytes_max=8 * world.part_bytes_max)


def _plans(world: World, rule: Rule) -> Iterator[WindowPlan]:
    history = cast(ChunkStore, world.history)
    partition_of = {source.pack_id: source.partition for source in world.sources}
    for pack_id, partition in sorted(partition_of.items()):
        for _, keys in groupby(history.keys(pack_id, EVER), key=lambda key: key.window_start_ms):
            yield plan_window(history, rule, partition, list(keys))


def _seen(plans: list[WindowPlan]) -> set[Fold]:
    return {(plan.partition, order) for plan in plans for order in plan.seen}
