"""Every program of examples/ runs as its docstring shows, and prints its results. The one for Spark: tests/spark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json
from tsdb.client import WriteBatch, connect

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WITHIN_S = 120.0
# Lines, or beginnings of lines, of the output in their order.
WITHOUT_A_SERVER = {
    "parallel_consumer.py": [
        "customer 3 order 3, order 8, order 13, order 18, order 23, order 28, order 33, order 38",
        "orders/0 committed at 24",
        "orders/1 committed at 16",
    ],
    "retries_and_dead_letters.py": [
        "attempt 1 of b'good'",
        "attempt 1 of b'bad'",
        "attempt 1 of b'busy once'",
        "attempt 2 of b'busy once'",
        "attempt 3 of b'always busy'",
        "orders.dlq: b'bad', b'exception', b'the amount is negative'",
        "orders.dlq: b'always busy', b'attempts', b'try again'",
    ],
    "chain_latency.py": ["2 hops, ", "x-shop-created-at 2", "x-shop-chain-hop-count 2", "x-shop-chain-ttl-hops 18"],
}
ON_A_SERVER = {
    "write_and_read.py": ["120 samples accepted", "kitchen 60 samples, the newest is 2", "kitchen averages: 2"],
    "async_client.py": ["a 12.0", "b 12.0", "c 12.0"],
    "data_frames.py": ["a        sda        30  971000000.0  1.000000e+09"],
    "live_tail.py": ["here 1"],
    "prometheus_text.sh": [
        '"labels","ts_ms","value"',
        '"{""__name__"":""example_jobs_total"",""instance"":""worker-1""',
    ],
}
ON_A_TABLE = {
    "table_duckdb.py": [
        "example_room_celsius attic: 60 samples, mean 29.50",
        "example_room_celsius cellar: 60 samples, mean 12.00",
    ],
    "table_pandas.py": ["room", "count", "min", "max"],
}
IN_THE_SPARK_TESTS = {
    "table_spark.py",  # tests/soak/test_table_in_spark.py
    "spark_anomaly_score.py",
    "spark_daily.py",
    "spark_daily_report.py",
    "spark_history.py",
    "spark_json_to_samples.py",
    "spark_notebook.py",
    "spark_recording_rule.py",
}


def run(name: str, *arguments: str) -> list[str]:
    """Lines that the example prints."""
    command = [str(EXAMPLES / name)] if name.endswith(".sh") else [sys.executable, "-W", "error", EXAMPLES / name]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=WITHIN_S, check=False, env=env
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout.splitlines()


def assert_prints(lines: list[str], expected: list[str]) -> None:
    rest = iter(lines)
    for begin in expected:
        assert any(line.startswith(begin) for line in rest), f"no line {begin!r} in its place: {lines}"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    """One server for all examples."""
    folder = tmp_path_factory.mktemp("examples")
    with Role(folder, "standalone", "--data-dir", str(folder / "data")) as role:
        yield role


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The catalog of a table that a standalone keeps. Its samples are a day late, so their chunks are made at once."""
    folder = tmp_path_factory.mktemp("table")
    url = f"sqlite:///{folder}/tables.db"
    # All samples of a room lie in one hour.
    first_ms = (time.time_ns() // 1_000_000 - 86_400_000) // 3_600_000 * 3_600_000
    batch = WriteBatch()
    times = [first_ms + 1_000 * at for at in range(60)]
    batch.add({"__name__": "example_room_celsius", "room": "attic"}, times, [float(at) for at in range(60)])
    batch.add({"__name__": "example_room_celsius", "room": "cellar"}, times, [12.0] * 60)
    arguments = ("--time-set", "demo", "--tables", url, "--tables-commit-interval-s", "0.2")
    with Role(folder, "standalone", "--data-dir", str(folder / "data"), *arguments) as role:
        with connect(role.grpc) as client:
            client.write(batch)
        wait_until(lambda: tsdb_json("tables", "check", "--tables", url)["samples"] == 120)
        yield url


def test_each_example_is_run_and_listed() -> None:
    programs = {file.name for file in EXAMPLES.iterdir() if file.suffix in (".py", ".sh")}
    assert programs == WITHOUT_A_SERVER.keys() | ON_A_SERVER.keys() | ON_A_TABLE.keys() | IN_THE_SPARK_TESTS
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in sorted(programs) if f"[{name}]({name})" not in text] == []


@pytest.mark.parametrize("name", WITHOUT_A_SERVER)
def test_an_example_without_a_server_prints_its_results(name: str) -> None:
    assert_prints(run(name), WITHOUT_A_SERVER[name])


@pytest.mark.parametrize("name", ON_A_SERVER)
def test_an_example_on_a_server_prints_its_results(name: str, standalone: Role) -> None:
    assert_prints(run(name, standalone.grpc), ON_A_SERVER[name])


@pytest.mark.parametrize("name", ON_A_TABLE)
def test_an_example_on_a_table_prints_its_results(name: str, catalog: str) -> None:
    assert_prints(run(name, catalog), ON_A_TABLE[name])
