"""Attacks a querier over two stores: one store is killed, then the other. Every command answers as a store would, or
says that nobody holds the partitions; nothing is ever answered short."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.servers.deployments import PARTITIONS, create_topics
from support.servers.logs import wait_until
from support.servers.processes import Role, run_tsdb, tsdb_json, tsdb_ok, wait_for_samples
from support.shared_servers import SharedBroker

SERIES = 40
SAMPLES = 50
NOTICED_WITHIN_S = 30.0
READ_S = "20s"

pytestmark = pytest.mark.timeout(600)  # Six starts of a process, each with its kernels to load on a busy machine.


@dataclass(frozen=True)
class Running:
    """A gateway, two stores that hold all partitions each, and a querier over both."""

    gateway: Role
    stores: tuple[Role, Role]
    querier: Role


@pytest.fixture
def running(tmp_path: Path, kafka: SharedBroker) -> Iterator[Running]:
    log = create_topics(kafka.bootstrap)
    gateway, *stores = (Role(tmp_path, name, *log) for name in ("gateway", "store", "store"))
    addresses = ",".join(store.grpc for store in stores)
    querier = Role(tmp_path, "querier", *log, "--stores", addresses)
    with ExitStack() as stack:
        for role in (gateway, *stores, querier):
            stack.push(role)
            role.start(ready=False)
        for role in (gateway, *stores, querier):
            role.wait_ready()
        yield Running(gateway, (stores[0], stores[1]), querier)


def rows(now_ms: int) -> list[dict[str, object]]:
    return [
        {
            "labels": {"__name__": f"m_{number % 4}", "job": "querier", "instance": f"i{number}"},
            "ts_ms": now_ms - 1000 * sample,
            "value": number + sample / 8,
        }
        for number in range(SERIES)
        for sample in range(SAMPLES)
    ]


def answer(address: str, now_ms: int) -> object:
    """Every sample, through the command line."""
    span = ("--start", str(now_ms - 1000 * SAMPLES), "--end", str(now_ms + 1))
    return tsdb_json("query", "--raw", '{job="querier"}', "--address", address, *span, "--timeout", READ_S)["series"]


def test_any_one_store_is_enough_and_none_is_an_error(running: Running) -> None:
    now_ms = time.time_ns() // 1_000_000
    lines = "\n".join(map(json.dumps, rows(now_ms))).encode()
    tsdb_ok("write", "-", "--format", "jsonl", "--address", running.gateway.grpc, stdin=lines)
    for store in running.stores:
        wait_for_samples(store.grpc, SERIES * SAMPLES)
    want = answer(running.stores[0].grpc, now_ms)
    querier = running.querier.grpc
    assert answer(querier, now_ms) == want
    check_commands(querier)
    check_promql(querier, now_ms)
    first, second = running.stores
    first.kill()
    assert answer(querier, now_ms) == want, "from the first read on: the querier need not have noticed"
    check_promql(querier, now_ms)
    first.start()
    second.kill()
    assert answer(querier, now_ms) == want
    first.kill()
    wait_until(lambda: running.querier.ready()[0] == 503, NOTICED_WITHIN_S)
    _, why = running.querier.ready()
    assert {partition["reason"] for partition in why["partitions"].values()} == {"no_store"}
    for form in ((), ("--raw",)):
        refused = run_tsdb("query", "m_1", *form, "--address", querier, "--last", "1m", "--timeout", "2s")
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"no store that answers holds partition" in refused.stderr
    second.start()
    running.querier.wait_ready(NOTICED_WITHIN_S)
    assert answer(querier, now_ms) == want
    assert running.querier.terminate() == 0


def check_promql(querier: str, now_ms: int) -> None:
    """Check that an expression has its value at one time and over a range."""
    query = ("query", 'sum by (__name__) ({job="querier"})', "--address", querier, "--timeout", READ_S)
    newest = tsdb_json(*query, "--at", str(now_ms))["series"]
    want = {f"m_{metric}": sum(range(metric, SERIES, 4)) for metric in range(4)}
    assert {series["labels"]["__name__"]: series["values"] for series in newest} == {
        name: [value] for name, value in want.items()
    }
    steps = ("--start", str(now_ms - 1000), "--end", str(now_ms), "--step", "1s")
    course = tsdb_json(*query, *steps)["series"]
    assert [series["ts_ms"] for series in course] == [[now_ms - 1000, now_ms]] * 4
    assert {series["labels"]["__name__"]: series["values"] for series in course} == {
        name: [value + 10 / 8, value] for name, value in want.items()
    }


def check_commands(querier: str) -> None:
    """Check that each reading command answers as a store would."""
    coverage = tsdb_json("coverage", "--address", querier)["partitions"]
    assert sorted(state["partition"] for state in coverage) == list(range(PARTITIONS))
    assert all(state["ready"] for state in tsdb_json("status", "--address", querier)["partitions"])
    assert len(tsdb_json("series", '{job="querier"}', "--address", querier)["series"]) == SERIES
    grouped = tsdb_json("series", "--group-by", "__name__", "--address", querier)["groups"]
    assert [(group["labels"]["__name__"], group["series"]) for group in grouped] == [(f"m_{n}", 10) for n in range(4)]
    largest = tsdb_json("cardinality", "--by", "metric", "--top", "3", "--address", querier)
    assert (largest["series"], largest["groups_total"]) == (SERIES, 4)
    assert [group["series"] for group in largest["groups"]] == [10] * 3
    sources = tsdb_json("cardinality", "--by", "source", "--selector", "m_1", "--address", querier)
    assert (sources["series"], sources["groups_total"]) == (10, 10)
    assert {"labels": {"instance": "i1", "job": "querier"}, "series": 1} in sources["groups"]
    labels = tsdb_json("cardinality", "--by", "label", "--address", querier)["groups"]
    assert [(one["label"], one["values"]) for one in labels] == [("instance", SERIES), ("__name__", 4), ("job", 1)]
    assert tsdb_json("labels", "--address", querier)["names"] == ["__name__", "instance", "job"]
    assert tsdb_json("labels", "__name__", "--address", querier)["values"] == [f"m_{n}" for n in range(4)]
