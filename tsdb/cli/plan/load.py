"""The load that a plan is for. Impossible input is refused by name, before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tsdb.cli.options.arguments import duration_text
from tsdb.log.interface import METRICS
from tsdb.log.topics import retention_needed_ms, topic_specs
from tsdb.model.errors import InvalidRequest
from tsdb.model.time_set import PRODUCTION

GIB = 1 << 30
INTERVAL_MS_MIN = 1000
SERIES_MAX = (
    80_000_000  # A gateway remembers at most 100 million series (gateway_series_max). A fifth is reserved for churn.
)
HOLD_EXTRA_MS_MAX = 12 * 3_600_000  # Bound of the setting hold_extra_ms.
REPLICAS_MAX = 10
STORE_GIB_MIN, STORE_GIB_MAX = 4, 1024


@dataclass(frozen=True, slots=True)
class Load:
    """The load of an installation. Raises InvalidRequest, with the name of the field as reason.

    hold_ms: the hold of stores. retention_ms: the retention of history. log_retention_ms: the log retention of the
    topic `metrics`. replicas: the replicas of each shard. queries: PromQL queries a second, each over 10,000 series x
    240 points. request_samples: the samples of a write request. partitions: the partitions of a log that exists; None:
    the plan chooses. sample_bytes: the bytes of a sample in chunks; None: the measured one. store_gib: memory of one
    store's pod at most.
    chunk_stage: the engine of the chunk stage.
    """

    series: int
    interval_ms: int
    hold_ms: int = PRODUCTION.least_hold_ms
    replicas: int = 2
    retention_ms: int = 365 * 86_400_000
    log_retention_ms: int = 5 * 86_400_000
    queries: float = 10.0
    request_samples: int = 1000
    partitions: int | None = None
    sample_bytes: float | None = None
    store_gib: int = 10
    brokers: int = 3
    kafka_replication: int = 3
    nodes: int = 3
    cassandra_replication: int = 3
    chunk_stage: Literal["spark", "python"] = "spark"

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            message = check(self)
            if message:
                raise InvalidRequest(message, reason=name)

    @property
    def rate(self) -> float:
        """Samples a second of all series together."""
        return self.series * 1000 / self.interval_ms


def _series(load: Load) -> str | None:
    if 0 < load.series <= SERIES_MAX:
        return None
    return f"series {load.series:,} is not from 1 to {SERIES_MAX:,}, the limit of one log; plan several logs"


def _interval(load: Load) -> str | None:
    low, high = INTERVAL_MS_MIN, PRODUCTION.window_ms
    if low <= load.interval_ms <= high:
        return None
    legal = f"{duration_text(low)} to {duration_text(high)}"
    return (
        f"interval {duration_text(load.interval_ms)} is not from {legal}, the window of a chunk; give the time between"
        " two samples of a series"
    )


def _hold(load: Load) -> str | None:
    low, high = PRODUCTION.least_hold_ms, PRODUCTION.least_hold_ms + HOLD_EXTRA_MS_MAX
    if low <= load.hold_ms <= high:
        return None
    legal = f"{duration_text(low)}, the least hold, to {duration_text(high)}"
    return f"hold {duration_text(load.hold_ms)} is not from {legal}; older data is history's"


def _replicas(load: Load) -> str | None:
    if 2 <= load.replicas <= REPLICAS_MAX:
        return None
    return (
        f"replicas {load.replicas} is not from 2 to {REPLICAS_MAX}; with one, no store answers for its partitions while"
        " it restarts"
    )


def _retention(load: Load) -> str | None:
    if load.retention_ms >= load.hold_ms:
        return None
    kept, hold = duration_text(load.retention_ms), duration_text(load.hold_ms)
    return (
        f"retention {kept} is below the hold {hold}: history would lose samples that memory still has; keep it longer"
    )


def _log_retention(load: Load) -> str | None:
    (log,) = (spec for spec in topic_specs(1) if spec.name == METRICS)
    least = (retention_needed_ms(log, PRODUCTION) or 0) + load.hold_ms - PRODUCTION.least_hold_ms
    if load.log_retention_ms >= least:
        return None
    kept, needed = duration_text(load.log_retention_ms), duration_text(least)
    return (
        f"log_retention {kept} is below {needed}: the hold, one window of the chunk stage and a day of outage; keep the"
        " log longer or hold less"
    )


def _queries(load: Load) -> str | None:
    return None if 0 <= load.queries <= 1e6 else f"queries {load.queries:g} is not from 0 to 1,000,000 a second"


def _request_samples(load: Load) -> str | None:
    if 1 <= load.request_samples <= 1_000_000:
        return None
    return f"request_samples {load.request_samples:,} is not from 1 to 1,000,000"


def _sample_bytes(load: Load) -> str | None:
    if load.sample_bytes is None or 0.01 <= load.sample_bytes <= 16:
        return None
    return f"sample_bytes {load.sample_bytes:g} is not from 0.01 to 16, the bytes of a sample without any compression"


def _store_gib(load: Load) -> str | None:
    if STORE_GIB_MIN <= load.store_gib <= STORE_GIB_MAX:
        return None
    return (
        f"store_gib {load.store_gib} is not from {STORE_GIB_MIN} to {STORE_GIB_MAX}; 2 GiB of it are the process itself"
    )


def _brokers(load: Load) -> str | None:
    if 1 <= load.kafka_replication <= load.brokers <= 1000:
        return None
    return (
        f"brokers {load.brokers} cannot hold {load.kafka_replication} replicas of a topic; give 1 to 1,000, and as many"
    )


def _nodes(load: Load) -> str | None:
    if 1 <= load.cassandra_replication <= load.nodes <= 1000:
        return None
    return (
        f"nodes {load.nodes} of Cassandra cannot hold {load.cassandra_replication} replicas of a row; give 1 to 1,000,"
        " and as many"
    )


_CHECKS = {
    "series": _series,
    "interval": _interval,
    "hold": _hold,
    "replicas": _replicas,
    "retention": _retention,
    "log_retention": _log_retention,
    "queries": _queries,
    "request_samples": _request_samples,
    "sample_bytes": _sample_bytes,
    "store_gib": _store_gib,
    "brokers": _brokers,
    "nodes": _nodes,
}
