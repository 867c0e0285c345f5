"""`tsdb plan` computes the size of an installation for a load, from the figures of docs/benchmarks.md."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tsdb.cli.options.arguments import Milliseconds, duration, duration_text
from tsdb.cli.terminal.output import note, print_json, print_table

if TYPE_CHECKING:
    from tsdb.cli.plan.load import Load
    from tsdb.cli.plan.roles import Role
    from tsdb.cli.plan.shards import Division
    from tsdb.cli.plan.storage import StorageSizes

ROLE_COLUMNS = ("role", "count", "cores", "memory GiB", "busy cores", "why")
DISK_COLUMNS = ("place", "disk GiB", "kept", "why")
_UNITS = {"": 1, "k": 1000, "M": 1_000_000, "G": 1_000_000_000}
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kMG]?)")
GIB = 1 << 30
MIB = 1 << 20


def count(text: str) -> int:
    """A number such as 5000, 100k or 2.5M."""
    match = _COUNT.fullmatch(text)
    if not match:
        raise typer.BadParameter(f"{text!r} is not a number such as 5000, 100k or 2.5M")
    return round(float(match[1]) * _UNITS[match[2]])


def plan(
    series: Annotated[
        int, typer.Option("--series", parser=count, metavar="N", help="Active series, as in 100k or 2.5M.")
    ],
    interval: Annotated[
        Milliseconds,
        typer.Option("--interval", parser=duration, metavar="DURATION", help="Time between two samples of a series."),
    ],
    hold: Annotated[
        Milliseconds, typer.Option("--hold", parser=duration, metavar="DURATION", help="Hold of stores.")
    ] = "10h",  # type: ignore[assignment]  # parsed as if typed
    replicas: Annotated[int, typer.Option("--replicas", help="Stores of each shard.")] = 2,
    retention: Annotated[
        Milliseconds, typer.Option("--retention", parser=duration, metavar="DURATION", help="Retention of history.")
    ] = "365d",  # type: ignore[assignment]
    log_retention: Annotated[
        Milliseconds, typer.Option("--log-retention", parser=duration, metavar="DURATION", help="Retention of the log.")
    ] = "5d",  # type: ignore[assignment]
    queries: Annotated[
        float, typer.Option("--queries", help="PromQL queries a second, each over 10,000 series x 240 points.")
    ] = 10.0,
    request_samples: Annotated[int, typer.Option("--request-samples", help="Samples of a write request.")] = 1000,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="Partitions of a log that exists; by default the plan chooses.")
    ] = None,
    sample_bytes: Annotated[
        float | None,
        typer.Option(
            "--sample-bytes",
            help="Bytes of a sample in chunks, measured on your data; by default those of a workload with 20 % noise.",
        ),
    ] = None,
    store_gib: Annotated[int, typer.Option("--store-gib", help="Memory of one store's pod, at most.")] = 10,
    brokers: Annotated[int, typer.Option("--brokers", help="Brokers of Kafka.")] = 3,
    kafka_replication: Annotated[int, typer.Option("--kafka-replication", help="Replicas of each topic.")] = 3,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes of Cassandra.")] = 3,
    cassandra_replication: Annotated[
        int, typer.Option("--cassandra-replication", help="Replicas of each row of history.")
    ] = 3,
    chunk_stage: Annotated[
        Literal["spark", "python"],
        typer.Option("--chunk-stage", help="Engine of the chunk stage; one Python chunker holds all open windows."),
    ] = "spark",
    output: Annotated[
        Literal["table", "json", "helm-values"],
        typer.Option(
            "--output", help="Output format; helm-values are values of the chart, as JSON, which is YAML too."
        ),
    ] = "table",
) -> None:
    """Print how many processes, cores and disks a load needs, from measured figures.

    The plan is a cluster on Kafka with Spark as its pipeline. A last line tells when one process without Kafka is
    enough.
    It connects to nothing. Measure your own workload before you buy machines: docs/benchmarks.md has the figures and
    their conditions.
    """
    # Imported here: help pages do without the modules of the log.
    from tsdb.cli.plan.helm import helm_values
    from tsdb.cli.plan.load import Load
    from tsdb.cli.plan.roles import roles, standalone_is_enough
    from tsdb.cli.plan.shards import divide
    from tsdb.cli.plan.storage import storage

    load = Load(
        series=series,
        interval_ms=interval.ms,
        hold_ms=hold.ms,
        replicas=replicas,
        retention_ms=retention.ms,
        log_retention_ms=log_retention.ms,
        queries=queries,
        request_samples=request_samples,
        partitions=partitions,
        sample_bytes=sample_bytes,
        store_gib=store_gib,
        brokers=brokers,
        kafka_replication=kafka_replication,
        nodes=nodes,
        cassandra_replication=cassandra_replication,
        chunk_stage=chunk_stage,
    )
    division = divide(load)
    planned = roles(load, division)
    if output == "helm-values":
        sys.stdout.write(json.dumps(helm_values(load, division, planned), indent=2) + "\n")
    elif output == "json":
        print_json(_json(load, division, planned, storage(load)))
    else:
        _print_tables(load, division, planned, storage(load))
        if standalone_is_enough(load, division):
            note(
                "one process is enough for this load: `tsdb standalone`, without Kafka; a cluster is for replicas, and"
                " for data that must survive the disk of a machine"
            )


def _print_tables(load: Load, division: Division, planned: list[Role], stored: StorageSizes) -> None:
    rows = [
        (one.name, one.count, one.cores, f"{one.memory_bytes / GIB:g}", f"{one.busy_cores:.2f}", one.reason)
        for one in planned
    ]
    cores = sum(one.count * one.cores for one in planned)
    memory = sum(one.count * one.memory_bytes for one in planned) / GIB
    total = ("all", sum(one.count for one in planned), cores, f"{memory:g}", "", "cores and memory of all together")
    print_table(ROLE_COLUMNS, [*rows, total], right=ROLE_COLUMNS[1:5])
    print()
    print_table(DISK_COLUMNS, _disks(load, stored), right=DISK_COLUMNS[1:3])
    note(
        f"{load.rate:,.0f} samples/s; {division.partitions} partitions of the log in {_shards(division.shards)};"
        f" brokers take {stored.written_bytes_s / MIB:,.1f} MiB/s, copy {stored.copied_bytes_s / MIB:,.1f}, serve"
        f" {stored.read_bytes_s / MIB:,.1f} and have {stored.broker_busy_cores:.1f} cores busy in all"
    )


def _disks(load: Load, stored: StorageSizes) -> list[tuple[str, str, str, str]]:
    topics = [
        (f"topic {one.name}", _gib(one.bytes), duration_text(one.kept_ms), f"{load.kafka_replication} replicas")
        for one in stored.topics
    ]
    history = stored.history
    return [
        *topics,
        ("each broker", _gib(stored.broker_disk_bytes), "", f"{load.brokers} brokers, disks 60 % full"),
        ("history", _gib(history.bytes), duration_text(history.kept_ms), f"{load.cassandra_replication} replicas"),
        ("each Cassandra node", _gib(stored.node_disk_bytes), "", f"{load.nodes} nodes, disks 60 % full"),
    ]


def _shards(number: int) -> str:
    return f"{number:,} shard{'s' if number > 1 else ''}"


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f}"


def _json(load: Load, division: Division, planned: list[Role], stored: StorageSizes) -> dict[str, Any]:
    from tsdb.cli.plan.roles import standalone_is_enough

    return {
        "samples_per_s": round(load.rate, 3),
        "standalone_is_enough": standalone_is_enough(load, division),
        "shards": division.shards,
        "partitions": division.partitions,
        "heads_bytes": division.heads_bytes,
        "memory_soft_bytes": division.soft_bytes,
        "memory_hard_bytes": division.hard_bytes,
        "start_replay_cpu_s": round(division.replay_cpu_s, 1),
        "roles": [
            {
                "role": one.name,
                "count": one.count,
                "cores": one.cores,
                "memory_bytes": one.memory_bytes,
                "busy_cores": round(one.busy_cores, 3),
            }
            for one in planned
        ],
        "kafka": {
            "topics": {one.name: round(one.bytes) for one in stored.topics},
            "broker_disk_bytes": stored.broker_disk_bytes,
            "written_bytes_per_s": round(stored.written_bytes_s),
            "copied_bytes_per_s": round(stored.copied_bytes_s),
            "read_bytes_per_s": round(stored.read_bytes_s),
            "busy_cores": round(stored.broker_busy_cores, 3),
        },
        "cassandra": {"history_bytes": round(stored.history.bytes), "node_disk_bytes": stored.node_disk_bytes},
    }
