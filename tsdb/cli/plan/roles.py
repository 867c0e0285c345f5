"""Processes of a plan: computes the number of processes of each role, and the cores and memory of one process."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from tsdb.cli.plan import figures
from tsdb.cli.plan.load import GIB, Load
from tsdb.cli.plan.shards import CPU_FILL, MEMORY_FILL, Division, window_bytes
from tsdb.model.errors import InvalidRequest

TABLE_STEP_BYTES = 256 << 20  # Default of series_table_bytes, and the size of the steps above it.
INFLIGHT_BYTES = 512 << 20  # Twice inflight_bytes_max: requests being received have a bound of the same size.
CHUNK_MEMORY_BYTES = 4 * GIB  # Default of chunk_memory_bytes.
QUERIER_CORES = 2
EXECUTOR_CORES = 2
EXECUTOR_FILL = 0.5  # The other half is for the loss of an executor.
JOBS_CORES, JOBS_BYTES = 2, 6 * GIB  # Values `spark.jobs` of the chart.
STANDALONE_CORES = 1.5  # Busy cores of a machine with two: the rest is for peaks.
LOG_READS_OF_SPARK = 2  # Spark reads the log once for windows and once for late samples.


@dataclass(frozen=True, slots=True)
class Role:
    """`count` processes, each with `cores` and `memory_bytes`. busy_cores: average use of all of them together."""

    name: str
    count: int
    cores: int
    memory_bytes: int
    busy_cores: float
    reason: str


def roles(load: Load, division: Division) -> list[Role]:
    """All processes, in the order in which a sample passes them."""
    return [_gateway(load), _store(load, division), *_chunk_stage(load, division), _loader(load), _querier(load)]


def series_table_bytes(load: Load) -> int:
    """The setting of that name."""
    wanted = load.series * figures.SERIES_TABLE_BYTES.value / MEMORY_FILL
    return max(1, math.ceil(wanted / TABLE_STEP_BYTES)) * TABLE_STEP_BYTES


def on_spark(load: Load) -> bool:
    """Whether Spark runs the chunk stage. Raises InvalidRequest when one Python chunker cannot hold the open
    windows."""
    if load.chunk_stage == "spark":
        return True
    if window_bytes(load) > CHUNK_MEMORY_BYTES * MEMORY_FILL:
        raise InvalidRequest(
            f"open windows of {window_bytes(load) / GIB:,.1f} GiB are too large for a Python chunker, which holds"
            f" {CHUNK_MEMORY_BYTES * MEMORY_FILL / GIB:,.1f} GiB: leave the chunk stage to Spark",
            reason="chunk_stage",
        )
    return False


def standalone_is_enough(load: Load, division: Division) -> bool:
    """Whether one process of one machine carries the load. It is as durable as the disk of that machine."""
    writes = load.rate * (figures.STANDALONE_WRITE_CPU_S.value + figures.CHUNKER_CORES.value)
    return division.shards == 1 and writes + load.queries * figures.QUERY_CPU_S.value <= STANDALONE_CORES


def _gateway(load: Load) -> Role:
    requests = load.rate / load.request_samples
    busy = requests * request_cpu_s(load.request_samples)
    process = figures.GATEWAY_BYTES.value - 2e6 * figures.SERIES_TABLE_BYTES.value
    memory = math.ceil((process + series_table_bytes(load) + INFLIGHT_BYTES) / GIB) * GIB
    return Role("gateway", _count(busy, 1), 1, memory, busy, f"{requests:,.0f} requests/s; one may stop")


def request_cpu_s(samples: int) -> float:
    """CPU of a write request: between two measured sizes on the line between them, and beyond them by the sample."""
    measured = [(size, figure.value) for size, figure in sorted(figures.REQUEST_CPU_S.items())]
    for (low, cost), (high, more) in pairwise(measured):
        if samples <= high:
            return cost + (more - cost) * (max(samples, low) - low) / (high - low)
    largest, cost = measured[-1]
    return cost * samples / largest


def _store(load: Load, division: Division) -> Role:
    busy = load.replicas * (load.rate * figures.FOLLOW_CORES.value) + load.queries * figures.STORE_READ_CPU_S.value
    reason = (
        f"shards: {division.shards}, each {load.replicas} x; heads"
        f" {division.heads_bytes / division.shards / GIB:,.1f} GiB; a start replays {division.replay_cpu_s:,.0f} CPU s"
    )
    return Role("store", division.shards * load.replicas, division.cores, division.memory_bytes, busy, reason)


def _chunk_stage(load: Load, division: Division) -> list[Role]:
    if not on_spark(load):
        busy = load.rate * figures.CHUNKER_CORES.value
        open_gib = window_bytes(load) / GIB
        reason = f"open windows {open_gib:,.1f} GiB, which one holds alone"
        # One process carries all partitions when the other stops.
        return [Role("chunker", 2, max(1, math.ceil(busy / CPU_FILL)), CHUNK_MEMORY_BYTES + 2 * GIB, busy, reason)]
    records = load.rate / load.request_samples * min(load.request_samples, figures.RECORDS_A_REQUEST.value)
    busy = load.rate * figures.WINDOW_CPU_S.value + records * LOG_READS_OF_SPARK / figures.RECORDS_RATE.value
    count = max(2, math.ceil(busy / (EXECUTOR_CORES * EXECUTOR_FILL)))
    memory = executor_heap_bytes() + executor_overhead_bytes(load, division.partitions)
    reason = f"a window of a partition {window_bytes(load, division.partitions) / GIB:,.1f} GiB a task"
    return [
        Role("spark driver", 1, 1, 3 * GIB, 0.0, "names and offsets, no samples"),
        Role("spark executor", count, EXECUTOR_CORES, memory, busy, reason),
        Role("spark jobs", 1, JOBS_CORES, JOBS_BYTES, 0.0, "merge-late, downsample, verify; as the chart has it"),
    ]


def executor_heap_bytes() -> int:
    """Heap of the JVM. The arrays of tasks are outside of it."""
    return 2 * GIB


def executor_overhead_bytes(load: Load, partitions: int) -> int:
    """Memory of an executor beside its heap: a worker and a window for each of its cores."""
    task = figures.WORKER_BYTES.value + window_bytes(load, partitions)
    return math.ceil(EXECUTOR_CORES * task / GIB) * GIB


def _loader(load: Load) -> Role:
    busy = load.rate * figures.LOADER_CPU_S.value
    return Role("loader", _count(busy, 1), 1, GIB, busy, "one may stop")


def _querier(load: Load) -> Role:
    busy = load.queries * (figures.QUERY_CPU_S.value - figures.STORE_READ_CPU_S.value)
    reason = f"{load.queries:g} queries/s of 10,000 series x 240; one may stop"
    return Role("querier", _count(busy, QUERIER_CORES), QUERIER_CORES, 4 * GIB, busy, reason)


def _count(busy: float, cores: int) -> int:
    """Number of processes that carry the load when one has stopped; at least two."""
    return max(2, math.ceil(busy / (cores * CPU_FILL)) + 1)
