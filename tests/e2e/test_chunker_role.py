"""`tsdb chunker` as a process on a real broker: windows close by themselves, a stall shows, SIGTERM drains."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.servers.logs import wait_until
from support.servers.probes import healthy, partitions_ready
from support.servers.processes import Role, tsdb_json, tsdb_ok
from tsdb.client import WriteBatch, connect
from tsdb.model.time_set import DEMO
from tsdb.model.window import window_end

PARTITIONS = 2
SAMPLES = 40  # Each sample is from a separate instance, so in a separate pack.
EMITTED_WITHIN_S = 120.0  # A window, its grace and spread, on a busy machine.
LEAVES_WITHIN_S = 30.0  # The promise.
RETURNS_WITHIN_S = 90.0


@pytest.fixture(scope="module")
def log(broker: KafkaCluster) -> Sequence[str]:
    arguments = ("--log", f"kafka://{broker.bootstrap}", "--log-prefix", f"c{uuid.uuid4().hex[:12]}.")
    shared = (*arguments, "--time-set", "demo")
    tsdb_ok("topics", "create", *shared, "--partitions", str(PARTITIONS), "--replication", "1")
    return shared


@pytest.fixture(scope="module")
def roles(log: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Role, Role]]:
    """A gateway and a chunker."""
    scratch = tmp_path_factory.mktemp("chunker")
    gateway, chunker = Role(scratch, "gateway", *log), Role(scratch, "chunker", *log)
    with ExitStack() as stack:
        for role in (gateway, chunker):
            stack.push(role)
            role.start(ready=False)
        for role in (gateway, chunker):
            role.wait_ready()
        yield gateway, chunker


@pytest.fixture(scope="module")
def chunker(roles: tuple[Role, Role]) -> Role:
    return roles[1]


def test_windows_of_written_samples_close_by_themselves_and_become_chunks(
    log: Sequence[str], roles: tuple[Role, Role]
) -> None:
    gateway, chunker = roles
    assert partitions_ready(chunker) == dict.fromkeys(range(PARTITIONS), True)
    with connect(gateway.grpc, timeout_s=60.0) as client:
        batch, written_ms = WriteBatch(), time.time_ns() // 1_000_000
        for number in range(SAMPLES):
            batch.add({"__name__": "m", "job": "j", "instance": f"i{number}"}, written_ms, float(number))
        client.write(batch)
    # Nothing is written any more: ticks have to move the log's time.
    through_ms = window_end(written_ms, DEMO.window_ms)

    def emitted() -> bool:
        metrics, name = chunker.metrics(), "tsdb_chunk_stage_emitted_through_timestamp_seconds"
        found = [metrics.get(f'{name}{{engine="python",partition="{number}"}}', 0) for number in range(PARTITIONS)]
        return min(found) * 1000 >= through_ms

    def committed() -> bool:
        rows = tsdb_json("chunks", "status", *log)["partitions"]
        return all((row["emitted_through_ms"] or 0) >= through_ms for row in rows)

    # Samples that a busy machine appended after their window had closed are late, and follow the window.
    wait_until(lambda: chunks_made(chunker) >= SAMPLES, EMITTED_WITHIN_S)
    wait_until(emitted, EMITTED_WITHIN_S)
    wait_until(committed, EMITTED_WITHIN_S)
    rows = map(json.loads, tsdb_ok("chunks", "dump", *log, "--output", "json").decode().splitlines())
    assert sum(row["samples"] for row in rows if row["what"] in ("base", "late")) == SAMPLES
    assert chunker.metrics()['tsdb_chunk_stage_ticks_total{engine="python"}'] >= PARTITIONS
    assert chunks_made(chunker) == SAMPLES


def chunks_made(chunker: Role) -> float:
    metrics = chunker.metrics()
    name = "tsdb_chunk_stage_chunks_total"
    return sum(metrics[f'{name}{{engine="python",kind="{kind}"}}'] for kind in ("base", "late"))


def test_a_frozen_broker_shows_in_readiness_and_it_goes_on_afterwards(broker: KafkaCluster, chunker: Role) -> None:
    broker.suspend_broker(0)
    try:
        wait_until(lambda: chunker.ready()[0] == 503, LEAVES_WITHIN_S)
        assert healthy(chunker)
    finally:
        broker.resume_broker(0)
    chunker.wait_ready(RETURNS_WITHIN_S)


def test_sigterm_gives_the_partitions_back_and_ends_well(log: Sequence[str], chunker: Role, tmp_path: Path) -> None:
    with Role(tmp_path, "chunker", *log) as spare:
        assert chunker.terminate() == 0
        wait_until(lambda: partitions_ready(spare) == dict.fromkeys(range(PARTITIONS), True), RETURNS_WITHIN_S)
        assert spare.terminate() == 0
