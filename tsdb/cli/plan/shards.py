"""Shards of stores and partitions of the log: how a load is divided, and the memory of one store."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tsdb.cli.plan import figures
from tsdb.cli.plan.load import GIB, Load
from tsdb.cli.topics import PARTITIONS_MAX
from tsdb.model.errors import InvalidRequest
from tsdb.model.time_set import PRODUCTION, slice_lengths

CPU_FILL = 0.6  # Share of the cores of a pod, which is the target of the autoscalers. The rest is for bursts.
MEMORY_FILL = 0.8  # Share of memory_soft_bytes, because partitions differ in size.
PROCESS_BYTES = 2 * GIB  # Memory of a store beside its heads. The chart requests it too.
SOFT_SHARE = 0.75  # memory_soft_bytes of memory_hard_bytes, as their defaults are.
STORE_CORES = 2
SHARDS_MAX = 1000
PARTITIONS_LEAST = 18  # The figures were measured with this number, and a log keeps its number of partitions.
WINDOW_BYTES_MAX = GIB  # Bytes of one partition in a task of Spark.


@dataclass(frozen=True, slots=True)
class Division:
    """The stores: shards x replicas processes, each with `cores` and `memory_bytes`, of which heads take up to
    `hard_bytes`.

    heads_bytes: heads of all partitions, counted once.

    """

    shards: int
    partitions: int
    cores: int
    soft_bytes: int
    hard_bytes: int
    memory_bytes: int
    heads_bytes: int
    replay_cpu_s: float


def divide(load: Load) -> Division:
    """The fewest shards that carry the load. Raises InvalidRequest (partitions, shards)."""
    heads, cores = heads_bytes(load), store_cores(load)
    soft_max = int((load.store_gib * GIB - PROCESS_BYTES) * SOFT_SHARE)
    least = max(1, math.ceil(heads / (soft_max * MEMORY_FILL)), math.ceil(cores / (STORE_CORES * CPU_FILL)))
    if least > SHARDS_MAX:
        raise InvalidRequest(
            f"{load.rate:,.0f} samples/s held for {load.hold_ms // 1000:,} s need {least:,} shards of"
            f" {load.store_gib} GiB; the limit is {SHARDS_MAX:,}: give stores more memory, hold less, or plan several"
            " logs",
            reason="shards",
        )
    shards, partitions = _with_partitions(load, least, heads, soft_max)
    share = math.ceil(partitions / shards) / partitions  # The share of the shard that has the most partitions.
    soft = min(soft_max, _whole_gib(heads * share / MEMORY_FILL))
    hard = int(soft / SOFT_SHARE)
    return Division(
        shards=shards,
        partitions=partitions,
        cores=min(STORE_CORES, max(1, math.ceil(cores * share / CPU_FILL))),
        soft_bytes=soft,
        hard_bytes=hard,
        memory_bytes=_whole_gib(hard + PROCESS_BYTES),
        heads_bytes=heads,
        replay_cpu_s=load.rate * load.hold_ms / 1000 * share / figures.REPLAY_RATE.value,
    )


def heads_bytes(load: Load) -> int:
    """Bytes of the samples of the hold and of one more large slice, because slices are dropped whole; and of labels and
    postings."""
    held_s = (load.hold_ms + slice_lengths(PRODUCTION.name).large_ms) / 1000
    return int(load.rate * held_s * figures.HEAD_BYTES.value + load.series * figures.INDEX_BYTES.value)


def store_cores(load: Load) -> float:
    """Cores of one store that had all partitions: following the log, and its share of the reads."""
    return load.rate * figures.FOLLOW_CORES.value + load.queries * figures.STORE_READ_CPU_S.value


def window_bytes(load: Load, partitions: int = 1) -> float:
    """Open samples of the chunk stage in one partition: a window and its grace."""
    open_s = (PRODUCTION.window_ms + PRODUCTION.grace_ms) / 1000
    return load.rate / partitions * open_s * figures.HEAD_BYTES.value


def _with_partitions(load: Load, least: int, heads: int, soft_max: int) -> tuple[int, int]:
    """Numbers of shards and partitions. When the partitions are not given, all shards have the same number."""
    if load.partitions is None:
        wanted = max(PARTITIONS_LEAST, math.ceil(window_bytes(load) / WINDOW_BYTES_MAX))
        partitions = math.ceil(wanted / least) * least
        return least, partitions
    if not 1 <= load.partitions <= PARTITIONS_MAX:
        raise InvalidRequest(f"partitions {load.partitions:,} is not from 1 to {PARTITIONS_MAX:,}", reason="partitions")
    for shards in range(least, load.partitions + 1):
        if heads * math.ceil(load.partitions / shards) / load.partitions <= soft_max * MEMORY_FILL:
            return shards, load.partitions
    raise InvalidRequest(
        f"partitions {load.partitions} are fewer than the shards that the load needs, at least {least:,} of"
        f" {load.store_gib} GiB: give stores more memory, or write into a new log with more partitions",
        reason="partitions",
    )


def _whole_gib(size: float) -> int:
    return max(1, math.ceil(size / GIB)) * GIB
