"""`tsdb plan`: sizes grow with the load, hold it, and impossible input is refused by name."""

from __future__ import annotations

import pytest

from support.cli import Shell
from tsdb.cli.plan import figures
from tsdb.cli.plan.load import GIB, SERIES_MAX, Load
from tsdb.cli.plan.roles import on_spark, request_cpu_s, roles, series_table_bytes, standalone_is_enough
from tsdb.cli.plan.shards import CPU_FILL, MEMORY_FILL, PARTITIONS_LEAST, divide
from tsdb.cli.plan.storage import storage
from tsdb.model.errors import InvalidRequest

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SMALL = Load(10_000, 15_000)
MISSION = Load(2_250_000, 15_000)  # 150 k samples a second.
LARGE = Load(50_000_000, 10_000)
LOADS = [SMALL, MISSION, LARGE, Load(1, 1000), Load(1_000_000, 60_000, hold_ms=22 * HOUR_MS, replicas=3, queries=500)]


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_heads_and_work_fit_the_stores(load: Load) -> None:
    division = divide(load)
    share = -(-division.partitions // division.shards) / division.partitions
    assert division.heads_bytes * share <= division.soft_bytes * MEMORY_FILL
    assert division.soft_bytes < division.hard_bytes <= division.memory_bytes - 2 * GIB
    assert division.memory_bytes <= load.store_gib * GIB
    assert division.partitions % division.shards == 0
    assert division.partitions >= PARTITIONS_LEAST


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_each_role_carries_its_work_after_one_process_has_stopped(load: Load) -> None:
    for role in roles(load, divide(load)):
        if role.name in ("gateway", "loader", "querier"):
            assert (role.count - 1) * role.cores * CPU_FILL >= role.busy_cores
        if role.name == "store":
            assert role.count % load.replicas == 0
            assert role.count // load.replicas * role.cores >= role.busy_cores / load.replicas
        assert role.count >= (1 if role.name in ("spark driver", "spark jobs") else 2)


def test_more_of_anything_needs_no_less() -> None:
    def size(load: Load) -> tuple[float, ...]:
        division, stored = divide(load), storage(load)
        memory = sum(role.count * role.memory_bytes for role in roles(load, division))
        return division.shards, memory, stored.broker_disk_bytes, stored.node_disk_bytes, stored.written_bytes_s

    least = size(MISSION)
    for more in (
        Load(4_500_000, 15_000),
        Load(2_250_000, 5_000),
        Load(2_250_000, 15_000, hold_ms=20 * HOUR_MS),
        Load(2_250_000, 15_000, retention_ms=800 * DAY_MS),
        Load(2_250_000, 15_000, log_retention_ms=9 * DAY_MS),
        Load(2_250_000, 15_000, queries=2000),
        Load(2_250_000, 15_000, sample_bytes=5.0),
        Load(2_250_000, 15_000, replicas=3),
    ):
        found = size(more)
        assert all(now >= before for now, before in zip(found, least, strict=True)), more
        assert found != least, more


def test_spark_runs_the_chunk_stage_of_a_cluster_and_python_that_of_a_small_one_on_demand() -> None:
    assert on_spark(Load(35_000, 1000))
    assert not on_spark(Load(35_000, 1000, chunk_stage="python"))
    with pytest.raises(InvalidRequest, match=r"too large for a Python chunker.*leave the chunk stage to Spark"):
        on_spark(Load(40_000, 1000, chunk_stage="python"))


@pytest.mark.parametrize(
    ("load", "enough"),
    [
        (Load(10_000, 15_000, queries=1), True),
        (Load(100_000, 15_000, queries=1), True),
        (Load(10_000, 15_000, queries=500), False),
        (MISSION, False),
        (LARGE, False),
    ],
)
def test_one_process_is_enough_for_a_small_load(load: Load, enough: bool, shell: Shell) -> None:
    assert standalone_is_enough(load, divide(load)) is enough
    options = ("--series", load.series, "--interval", f"{load.interval_ms}ms", "--queries", load.queries)
    assert ("`tsdb standalone`, without Kafka" in shell.ok("plan", *options).err) is enough
    assert shell.ok("plan", *options, "--output", "json").json["standalone_is_enough"] is enough


def test_a_request_costs_what_was_measured_and_between_the_sizes_the_line() -> None:
    sizes = (10, 100, 1000)
    assert [request_cpu_s(size) for size in sizes] == pytest.approx(
        [figures.REQUEST_CPU_S[size].value for size in sizes]
    )
    assert request_cpu_s(1) == request_cpu_s(10)
    assert request_cpu_s(100) < request_cpu_s(500) < request_cpu_s(1000)
    assert request_cpu_s(5000) == pytest.approx(5 * request_cpu_s(1000))


def test_the_series_table_is_the_default_for_two_million_series_and_one_gib_for_ten() -> None:
    assert series_table_bytes(Load(2_000_000, 60_000)) == 256 << 20
    assert series_table_bytes(Load(10_000_000, 60_000)) == GIB


def test_history_and_the_log_are_the_measured_bytes_times_replicas() -> None:
    stored = storage(Load(1000, 1000, retention_ms=10 * DAY_MS, sample_bytes=2.0, cassandra_replication=2))
    assert stored.history.bytes == 1000 * 864_000 * 2.0 * 2
    (log,) = (topic for topic in stored.topics if topic.name == "metrics")
    assert log.bytes == pytest.approx(1000 * 5 * 86_400 * figures.LOG_BYTES.value * 3)


def test_the_partitions_of_an_existing_log_decide_the_shards() -> None:
    division = divide(Load(5_000_000, 10_000, partitions=64))
    assert division.partitions == 64
    assert -(-64 // division.shards) / 64 * division.heads_bytes <= division.soft_bytes * MEMORY_FILL


@pytest.mark.parametrize(
    ("options", "reason", "named"),
    [
        ({"series": 0}, "series", "plan several logs"),
        ({"series": SERIES_MAX + 1}, "series", "80,000,000"),
        ({"interval_ms": 10}, "interval", "10ms is not from 1s to 4h"),
        ({"interval_ms": 5 * HOUR_MS}, "interval", "the window of a chunk"),
        ({"hold_ms": HOUR_MS}, "hold", "10h, the least hold"),
        ({"hold_ms": 23 * HOUR_MS}, "hold", "to 22h"),
        ({"replicas": 1}, "replicas", "while it restarts"),
        ({"retention_ms": HOUR_MS}, "retention", "below the hold 10h"),
        ({"log_retention_ms": DAY_MS}, "log_retention", "a day of outage"),
        ({"hold_ms": 20 * HOUR_MS, "log_retention_ms": 2 * DAY_MS}, "log_retention", "hold less"),
        ({"queries": -1.0}, "queries", "not from 0"),
        ({"queries": float("nan")}, "queries", "not from 0"),
        ({"request_samples": 0}, "request_samples", "not from 1"),
        ({"sample_bytes": 0.0}, "sample_bytes", "without any compression"),
        ({"store_gib": 3}, "store_gib", "the process itself"),
        ({"brokers": 2}, "brokers", "cannot hold 3 replicas of a topic"),
        ({"nodes": 2}, "nodes", "cannot hold 3 replicas of a row"),
        ({"partitions": 0}, "partitions", "not from 1"),
        ({"partitions": 10_001}, "partitions", "to 10,000"),
        ({"series": 20_000_000, "partitions": 18}, "partitions", "a new log with more partitions"),
        ({"series": 80_000_000, "interval_ms": 1000}, "shards", "the limit is 1,000"),
    ],
)
def test_impossible_input_is_refused_by_name(options: dict[str, float], reason: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        divide(Load(**({"series": 1_000_000, "interval_ms": 15_000} | options)))  # type: ignore[arg-type]
    assert refused.value.reason == reason
    assert named in refused.value.message


def test_the_command_prints_tables_and_json(shell: Shell) -> None:
    done = shell.ok("plan", "--series", "2.25M", "--interval", "15s")
    assert "spark executor" in done.text
    assert "each Cassandra node" in done.text
    assert done.err.startswith("150,000 samples/s; ")
    found = shell.ok("plan", "--series", "2250000", "--interval", "15s", "--output", "json").json
    division = divide(MISSION)
    assert (found["shards"], found["partitions"]) == (division.shards, division.partitions)
    assert [role["role"] for role in found["roles"]] == [role.name for role in roles(MISSION, division)]
    assert found["kafka"]["broker_disk_bytes"] == storage(MISSION).broker_disk_bytes


def test_a_refusal_is_one_line_and_a_misuse_another_exit_code(shell: Shell) -> None:
    refused = shell.run("plan", "--series", "1M", "--interval", "15s", "--hold", "1h")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, b"", 1)
    assert shell.run("plan", "--series", "many", "--interval", "15s").code == 2
