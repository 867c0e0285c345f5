"""Actions: what a step of a schedule does to the world. Each draws its decisions from the random source of its step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ingest.rows import make_rows
from support.simulation.backups import backup, restore
from support.simulation.details import STALE_NAN, drawn, identities
from support.simulation.downsampling import downsample_on, read_downsampled_on
from support.simulation.jobs import fold_on, import_on, rebuild
from support.simulation.listings import listings
from support.simulation.oracle import Request
from support.simulation.processes import LIMITS
from support.simulation.promql import promql
from support.simulation.reads import read, read_stores
from support.simulation.times import DAY_MS, SLICES, TIMES
from support.simulation.trims import compact, forget_commits, repair, trim
from support.simulation.watchers import watch
from support.simulation.world import LOADERS, SOURCES, World
from tsdb.log.interface import CHUNKS, METRICS, SERIES
from tsdb.model.window import floor_to
from tsdb.ops.lifecycle import Deadline

ADVANCES_MS = (20, 100, 300, 600, 1_000, 2_500, 6_000, 10_000, TIMES.window_ms)
SOFT_BYTES, HARD_ABOVE_BYTES = (115_000, 140_000), (500, 20_000)  # An empty head has some 113,000.
STORES_MAX, ZOMBIES_MAX = 3, 2
WRITE_S = 5.0

Action = Callable[[World, random.Random], None]


def write(world: World, rng: random.Random) -> None:
    """A request of one to four series with one to three samples each: live, ahead, out of order, late, very late."""
    if rng.random() < world.profile.new_series and world.met < SOURCES:
        world.met += 1
    numbers = rng.sample(range(world.met), rng.randint(1, 4))
    if rng.random() < 0.3:
        numbers[0] = world.met - 1
    if world.lost_end:
        # Nothing announces a lost series again, except a write of it.
        numbers = [number for number in numbers if world.sources[number].pack_id not in world.forgotten] or [0]
    counts = [rng.randint(1, 3) for _ in numbers]
    ts_ms = [_time_ms(world, rng, number) for number, count in zip(numbers, counts, strict=True) for _ in range(count)]
    numbers_of = [number for number, count in zip(numbers, counts, strict=True) for _ in range(count)]
    values, details = np.array([_value(world, rng) for _ in ts_ms]), None
    if world.has_details:
        values, details = drawn(world.detail_random, world.profile.details, numbers_of, ts_ms, values)
    rows = make_rows(
        [world.sources[number].canonical for number in numbers],
        np.array(counts, np.uint32),
        np.array(ts_ms, np.int64),
        values,
    )
    announced = world.log.appends[SERIES]
    answer = world.gateway.submit(replace(rows, details=details), False, Deadline.after(WRITE_S))
    of_row = [world.sources[number] for number in numbers_of]
    samples = [
        (source.partition, source.series_id, time, bits)
        for source, time, bits in zip(of_row, ts_ms, identities(values, details), strict=True)
    ]
    world.requests.append(Request(samples, answer, world.log.appends[SERIES] > announced))


def _time_ms(world: World, rng: random.Random, number: int) -> int:
    """Often a time that the series has a sample of already."""
    source = world.sources[number]
    known = world.oracle.entries[source.partition][source.series_id]
    if known and rng.random() < 0.35:
        return rng.choice(list(known)[-8:])
    ts_ms = world.clock.now_ms() - _behind_ms(rng)
    if world.profile.edges and rng.random() < world.profile.edges:
        # The first or last millisecond of a slice or window.
        ts_ms = floor_to(ts_ms, rng.choice([SLICES.small_ms, TIMES.window_ms])) - rng.choice([0, 1])
    return ts_ms


def _behind_ms(rng: random.Random) -> int:
    window = TIMES.window_ms
    return rng.choice(
        [
            rng.randint(-TIMES.gateway_ahead_ms, 0),
            rng.randint(0, 300),
            rng.randint(0, 3_000),
            rng.randint(0, window),
            rng.randint(window, 4 * window),
            rng.randint(window, 4 * window) // 500 * 500,
            DAY_MS + TIMES.least_hold_ms + rng.randint(-window, 2 * window),
        ]
    )


def _value(world: World, rng: random.Random) -> float:
    world.values += 1
    return rng.choice([float("nan"), float(STALE_NAN), -0.0]) if rng.random() < 0.05 else float(world.values)


def advance(world: World, rng: random.Random) -> None:
    """Time passes. Abandoned appends land first: a broker does not keep them longer than a request may take."""
    world.log.land()
    world.clock.advance(rng.choice(ADVANCES_MS))


def land(world: World, rng: random.Random) -> None:
    """Write late appends, and deliver answers that were held back."""
    world.log.land()
    world.log.answer()


def gateway_restart(world: World, rng: random.Random) -> None:
    """The gateway is killed and started again."""
    world.start_gateway()


def querier_restart(world: World, rng: random.Random) -> None:
    """The querier is killed and started again."""
    world.start_querier()


def store_step(world: World, rng: random.Random) -> None:
    """A store applies some records, often all there are."""
    if world.stores:
        rng.choice(world.stores).step(rng.choice([1, 2, 5, 5_000, 5_000]))


def store_maintain(world: World, rng: random.Random) -> None:
    """A store seals, folds, merges, drops."""
    if world.stores:
        rng.choice(world.stores).maintain()


def store_start(world: World, rng: random.Random) -> None:
    """Start a store with a random depth of memory. Sometimes its memory begins right behind the loaded records."""
    if len(world.stores) >= STORES_MAX:
        return
    hold_ms = rng.randint(TIMES.least_hold_ms, 2 * TIMES.least_hold_ms)
    if rng.random() < world.profile.shallow:
        hold_ms = rng.randint(1_000, 10_000)
    elif rng.random() < world.profile.edge_starts:
        hold_ms = _edge_hold_ms(world, rng) or hold_ms
    limits = LIMITS
    if world.profile.tight and rng.random() < world.profile.tight:
        soft = rng.randint(*SOFT_BYTES)
        limits = replace(LIMITS, memory_soft_bytes=soft, memory_hard_bytes=soft + rng.randint(*HARD_ABOVE_BYTES))
    world.start_store(hold_ms, limits=limits)


def _edge_hold_ms(world: World, rng: random.Random) -> int | None:
    partition = rng.randrange(world.partitions)
    loaded = world.history.loaded_rows.get((world.log.topic_id(METRICS), partition))
    records = world.log.records(METRICS, partition)
    if loaded is None or not records:
        return None
    beyond = [record for record in records if record.offset >= loaded.position][:6]
    if not beyond:
        return None
    return max(min(world.clock.now_ms(), records[-1].broker_ms) - rng.choice(beyond).broker_ms, 1)


def store_kill(world: World, rng: random.Random) -> None:
    """A store is killed, unless it is the last one."""
    if len(world.stores) > 1:
        world.kill_store(rng.randrange(len(world.stores)))


def store_snapshot(world: World, rng: random.Random) -> None:
    """A store writes snapshots of its heads."""
    if world.stores:
        world.counts["snapshots"] += rng.choice(world.stores).take_snapshots()


def store_restart(world: World, rng: random.Random) -> None:
    """A store is killed and starts again in its folder, with its settings."""
    if world.stores:
        index = rng.randrange(len(world.stores))
        gone = world.stores[index]
        world.kill_store(index)
        world.start_store(gone.hold_ms, gone.folder, gone.limits)


def chunker_step(world: World, rng: random.Random) -> None:
    """A few rounds of the chunker that owns the partitions."""
    if not world.chunkers:
        world.start_chunker()
    for _ in range(rng.randint(1, 6)):
        world.chunkers[-1].step()
        if rng.random() < 0.3:
            world.log.answer()
    if rng.random() < 0.2:
        world.chunkers[-1].maintain()
    world.check_going()


def chunker_replace(world: World, rng: random.Random) -> None:
    """Another chunker takes over, and the former chunker does not know it yet."""
    if world.chunkers:
        world.chunkers[-1].group.unaware = rng.choice([0, 1, 5, 20])
    world.start_chunker()
    for gone in world.chunkers[: -1 - ZOMBIES_MAX]:
        gone.close()
    del world.chunkers[: -1 - ZOMBIES_MAX]


def chunker_kill(world: World, rng: random.Random) -> None:
    """SIGKILL for the chunker at any point of its work."""
    if world.chunkers:
        world.chunkers.pop().close()


def zombie_step(world: World, rng: random.Random) -> None:
    """A chunker or loader that was replaced goes on."""
    zombies: list[Callable[[], None]] = []
    old = world.groups[LOADERS].owner
    for chunker in world.zombies():
        zombies += [chunker.step, chunker.work]
    zombies += [loader.step for loader in world.loaders if loader.group is not old]
    if zombies:
        again = rng.choice(zombies)
        for _ in range(rng.randint(1, 4)):
            again()


def loader_step(world: World, rng: random.Random) -> None:
    """A few steps of the loader that owns the partitions; history answers some of its statements."""
    if not world.loaders:
        world.start_loader(rng.randrange(1 << 30))
    for _ in range(rng.randint(1, 6)):
        world.loaders[-1].step()
        world.history.answer(rng.choice([0, 1, 4, 50]))
        if rng.random() < 0.3:
            world.clock.advance(rng.choice([10, 250]))


def loader_replace(world: World, rng: random.Random) -> None:
    """Start a new loader. The former one may not notice it for some steps, as in chunker_replace."""
    if world.loaders:
        world.loaders[-1].group.unaware = rng.choice([0, 1, 5, 20])
    world.start_loader(rng.randrange(1 << 30))
    for gone in world.loaders[: -1 - ZOMBIES_MAX]:
        gone.kill()
    del world.loaders[: -1 - ZOMBIES_MAX]


def loader_kill(world: World, rng: random.Random) -> None:
    """Kill the loader. Each of its statements in flight takes effect or not."""
    if world.loaders:
        world.loaders.pop().kill()


def empty_history(world: World, rng: random.Random) -> None:
    """An operator drops the history, while loaders run or after they ended; then it is loaded from zero."""
    # Only a loader that wrote `loaded` can detect that history is empty.
    noticed = all(loader.has_raised(world.partitions) for loader in world.loaders)
    world.history.empty()
    world.counts["history emptied"] += 1
    if noticed and rng.random() < 0.5:
        return
    for loader in world.loaders:
        loader.kill()
    world.loaders.clear()


def damage_record(world: World, rng: random.Random) -> None:
    """A record of samples changes on the broker's disk after it was acknowledged."""
    with damaging(world, METRICS):
        write(world, rng)
        world.timer.fire()


def damage_chunks(world: World, rng: random.Random) -> None:
    """The chunk stage goes on while its records change on the broker's disk."""
    with damaging(world, CHUNKS):
        chunker_step(world, rng)


@contextmanager
def damaging(world: World, topic: str) -> Iterator[None]:
    """Half of what a topic gets meanwhile is damaged."""
    faults = world.log.faults
    world.log.faults = replace(faults, damaged={topic: 0.5})
    try:
        yield
    finally:
        world.log.faults = faults


def lose_announcements(world: World, rng: random.Random) -> None:
    """The topic `series` loses announcements that it acknowledged, most often of a series that nobody knows."""
    with damaging(world, SERIES):
        world.met = min(world.met + 1, SOURCES)
        write(world, rng)
        world.timer.fire()


ACTIONS: Mapping[str, Action] = {
    action.__name__.removesuffix("_on"): action
    for action in (
        write,
        advance,
        land,
        gateway_restart,
        querier_restart,
        store_step,
        store_maintain,
        store_start,
        store_kill,
        store_snapshot,
        store_restart,
        chunker_step,
        chunker_replace,
        chunker_kill,
        zombie_step,
        loader_step,
        loader_replace,
        loader_kill,
        empty_history,
        trim,
        compact,
        repair,
        forget_commits,
        damage_record,
        damage_chunks,
        lose_announcements,
        backup,
        restore,
        rebuild,
        import_on,
        fold_on,
        read,
        read_stores,
        downsample_on,
        read_downsampled_on,
        promql,
        listings,
        watch,
    )
}
