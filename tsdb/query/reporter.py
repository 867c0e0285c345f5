"""Reporter: publishes to gRPC health, metrics and the log, every half second, which partitions can be read.

A partition is ready while an answering store is ready for it. A history that is down or behind does not make it not
ready: memory can still be read, and a read that needs history is refused with the missing range.
"""

from __future__ import annotations

from collections.abc import Callable

from tsdb.answer.state import MemoryState
from tsdb.model.lag import known_lag
from tsdb.ops.health import PartitionHealth
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import gauge
from tsdb.ops.periodic import Periodic
from tsdb.query.sources import Sources
from tsdb.query.stores.routing import best_states

EVERY_S = 0.5
NO_STORE = "no_store"

log = get_logger(__name__)

ready = gauge("tsdb_query_partition_ready", "1 when a ready store answers for the partition.", "partition")


class StoresReporter(Periodic):
    """Reports the health of stores on its thread. `set_health(partition, serving)`: partition None means the whole
    querier."""

    def __init__(self, sources: Sources, set_health: Callable[[int | None, bool], None]) -> None:
        super().__init__("reporter", EVERY_S, self._update)
        self._sources = sources
        self._set_health = set_health
        self._ready: dict[int, bool] = {}

    def _update(self) -> None:
        partitions = partitions_health(self._sources)
        for partition, health in partitions.items():
            ready.labels(str(partition)).set(health.ready)
            self._set_health(partition, health.ready)
            before, self._ready[partition] = self._ready.get(partition), health.ready
            if health.ready and not before:
                log.info("partition ready", partition=partition)
            elif before and not health.ready:
                log.warning("partition not ready", partition=partition, reason=health.reason)
        self._set_health(None, all(health.ready for health in partitions.values()))


def partitions_health(sources: Sources) -> dict[int, PartitionHealth]:
    """Every partition of the log, in the form of `/-/ready`."""
    states = best_states(sources.stores, sources.topic_id, sources.partitions)
    found = {state.partition: _health(state) for state in states}
    return {partition: found.get(partition, PartitionHealth(False, NO_STORE)) for partition in sources.partitions}


def _health(state: MemoryState) -> PartitionHealth:
    details = {
        "lag_ms": known_lag(state.lag_ms),
        "lag_records": known_lag(state.lag_records),
        "coverage_start_ms": state.coverage_start_ms,
        "since_offset": state.since_offset,
    }
    return PartitionHealth(state.ready, state.reason, details)
