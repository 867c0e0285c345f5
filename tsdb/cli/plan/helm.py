"""Writes values of the Helm chart for a plan."""

from __future__ import annotations

from tsdb.cli.plan.load import GIB, Load
from tsdb.cli.plan.roles import EXECUTOR_CORES, Role, executor_heap_bytes, executor_overhead_bytes, series_table_bytes
from tsdb.cli.plan.shards import Division
from tsdb.model.time_set import PRODUCTION

SERIES_MARGIN = 1.2  # Factor on gateway_series_max, because series that have just ended still count.
GATEWAY_SERIES_MAX = 2_000_000  # The default of the setting gateway_series_max.


def helm_values(load: Load, division: Division, roles: list[Role]) -> dict[str, object]:
    """Values for deploy/helm/kafka-tsdb, without addresses and images."""
    by_name = {role.name: role for role in roles}
    spark = "spark executor" in by_name
    values: dict[str, object] = {
        "chunkStage": "spark" if spark else "chunker",
        "config": _config(load, division),
        "setup": {
            "partitions": division.partitions,
            "topicReplication": load.kafka_replication,
            "historyReplication": load.cassandra_replication,
        },
        "expected": {"samplesPerSecond": round(load.rate), "series": load.series},
        "gateway": _scaled(by_name["gateway"]),
        "store": {
            "shards": division.shards,
            "replicas": load.replicas,
            "resources": _resources(division.cores, division.memory_bytes),
        },
        "loader": {"replicas": by_name["loader"].count, "resources": _of(by_name["loader"])},
        "querier": _scaled(by_name["querier"]),
    }
    if spark:
        values["spark"] = {
            "executors": {
                "instances": by_name["spark executor"].count,
                "cores": EXECUTOR_CORES,
                "memory": f"{executor_heap_bytes() // GIB}g",
                "memoryOverhead": f"{executor_overhead_bytes(load, division.partitions) // GIB}g",
            }
        }
    else:
        values["chunker"] = {"replicas": by_name["chunker"].count, "resources": _of(by_name["chunker"])}
    return values


def _config(load: Load, division: Division) -> dict[str, int]:
    return {
        "gateway_series_max": max(GATEWAY_SERIES_MAX, int(load.series * SERIES_MARGIN)),
        "hold_extra_ms": load.hold_ms - PRODUCTION.least_hold_ms,
        "memory_hard_bytes": division.hard_bytes,
        "memory_soft_bytes": division.soft_bytes,
        "series_table_bytes": series_table_bytes(load),
    }


def _scaled(role: Role) -> dict[str, object]:
    return {"minReplicas": role.count, "maxReplicas": max(8, 2 * role.count), "resources": _of(role)}


def _of(role: Role) -> dict[str, object]:
    return _resources(role.cores, role.memory_bytes)


def _resources(cores: int, memory: int) -> dict[str, object]:
    size = f"{memory // GIB}Gi"
    return {"requests": {"cpu": str(cores), "memory": size}, "limits": {"memory": size}}
