"""Attacks the promise that `chunks` follows from the log alone, on a Spark cluster of two hosts, a broker and a
Cassandra node, while samples flow.

Engines take over from each other; executors, workers, drivers and the master are killed; Kafka and Cassandra are away
for a minute; a service manager stops everything. After each drill `chunks` equals, byte for byte, the output of one
uninterrupted Python chunk stage over the same log, and the commits are where the markers say.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stack.cassandra import CassandraNode
from support.drills.chunk_reruns import assert_reruns_equal, empty_logs
from support.oracles.chunk_twin import Written
from support.servers.chunkers import FastClock
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory, wait_until
from support.servers.processes import TSDB, Role, run_tsdb, tsdb_ok
from support.spark.cluster_ground import (
    PARTITIONS,
    Fault,
    Ground,
    kill_executors,
    kill_worker,
    nothing,
    running_ground,
    start_worker,
)
from support.spark.stream_service import ENDS_WITHIN_S, StreamService, by_submit
from tsdb.codec.chunk.key import encode_key
from tsdb.history.interface import ChunkStore
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Unavailable

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

AWAY_S = 60.0
MASTER_AWAY_S = 5.0
GIVES_WAY_WITHIN_S = 90.0
LOADED_WITHIN_S = 60.0
WAYS = ("pipeline", "run", "submit")
BY_SIGTERM = 128 + 15  # Exit code of a JVM.
ONE_COPY = 1  # Samples of the recorded log, for the last comparison.


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with running_ground(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def services(ground: Ground) -> Iterator[dict[str, StreamService]]:
    """The pipeline as a service, by the way it is started. At most one runs."""
    ways = {
        "pipeline": [*TSDB, *ground.stream("pipeline")],
        "run": [*TSDB, *ground.stream("run")],
        "submit": by_submit(ground.cluster.master, ground.stream("pipeline")),
    }
    made = {name: StreamService(command, ground.folder / name) for name, command in ways.items()}
    yield made
    for service in made.values():
        service.__exit__(None, None, None)


@pytest.fixture
def start(ground: Ground, services: dict[str, StreamService]) -> Callable[[str], StreamService]:
    """Start the service in one way, unless it runs, and wait until it commits."""

    def started(way: str) -> StreamService:
        for name, other in services.items():
            if name != way:
                other.close()
        service = services[way]
        if not service.running:
            service.start()
        ground.stage.wait_moved()
        return service

    return started


FAULTS = {
    "executor": Fault(kill_executors, nothing),
    "worker": Fault(kill_worker, start_worker, away_s=10.0),
    "master": Fault(lambda g: g.cluster.master_process.kill(), lambda g: g.cluster.start_master(), MASTER_AWAY_S),
    "kafka": Fault(lambda g: g.broker.stop_broker(0), lambda g: g.broker.start_broker(0), AWAY_S),
    "kafka_frozen": Fault(lambda g: g.broker.suspend_broker(0), lambda g: g.broker.resume_broker(0), AWAY_S),
}


@pytest.mark.parametrize("signalled", [pytest.param(True, id="stopped"), pytest.param(False, id="killed")])
def test_spark_takes_over_from_a_chunker(
    ground: Ground, services: dict[str, StreamService], start: Callable[[str], StreamService], signalled: bool
) -> None:
    for service in services.values():
        service.close()
    with ground.chunker() as chunker:
        chunker.wait_ready()
        ground.stage.wait_moved()
        before = ground.stage.check()
        if signalled:
            assert chunker.terminate() == 0
        else:
            chunker.kill()
        began = time.monotonic()
        start("pipeline")
        moved_s = time.monotonic() - began
        window_s = ground.stage.wait_window()
    ground.report(f"chunker -> Spark, {before}", f"commits after {moved_s:.1f} s, a window {window_s:.1f} s later")


def test_a_chunker_takes_over_from_spark(ground: Ground, start: Callable[[str], StreamService]) -> None:
    service = start("pipeline")
    second = run_tsdb(*ground.stream("pipeline"), "--http", "127.0.0.1:0")
    assert second.returncode == 1
    assert b"another member of group chunks holds" in second.stderr
    with ground.chunker() as chunker:
        end = service.wait_end(GIVES_WAY_WITHIN_S)
        gave_way_at = time.monotonic()
        service.close()
        assert end.code == 1, service.tail()
        assert "the pipeline gives way to it" in service.tail()
        ground.stage.overlapped()
        moved_s = ground.stage.wait_moved()
        took_s = time.monotonic() - gave_way_at
        window_s = ground.stage.wait_window()
        assert chunker.terminate() == 0
    detail = f"the pipeline ended by itself, exit code 1; commits {took_s:.1f} s later ({moved_s:.1f} s)"
    ground.report("Spark -> chunker", f"{detail}, a window {window_s:.1f} s later")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_the_chunks_of_the_log(ground: Ground, start: Callable[[str], StreamService], name: str) -> None:
    service, fault = start("run"), FAULTS[name]
    ended = len(service.ends)
    ground.stage.wait_append()
    struck_at = time.monotonic()
    at = time.strftime("%H:%M:%S", time.gmtime())
    fault.strike(ground)
    try:
        time.sleep(fault.away_s)  # The time that it is away.
    finally:
        fault.mend(ground)
    moved_s = ground.stage.wait_moved()
    after_s = time.monotonic() - struck_at
    window_s = ground.stage.wait_window()
    ends = [f"exit code {end.code} after {end.at - struck_at:.1f} s" for end in service.ends[ended:]]
    detail = f"at {at}, away {fault.away_s:g} s; commits after {after_s:.1f} s, {moved_s:.1f} s after its end"
    ground.report(f"{name}", f"{detail}, a window {window_s:.1f} s later; service ended: {', '.join(ends) or 'never'}")
    assert len(ends) <= fault.ends, service.tail()


@pytest.mark.parametrize("name", ["", "python", "java"], ids=["all", "python", "jvm"])
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_driver_goes_on_from_the_commits(
    ground: Ground, start: Callable[[str], StreamService], way: str, name: str
) -> None:
    service = start(way)
    ended = len(service.ends)
    ground.stage.wait_append()
    struck_at = time.monotonic()
    at = time.strftime("%H:%M:%S", time.gmtime())
    service.kill(name)
    wait_until(lambda: len(service.ends) > ended, ENDS_WITHIN_S, describe=service.tail)
    ended_s = service.ends[-1].at - struck_at
    ground.stage.wait_moved()
    moved_s = time.monotonic() - struck_at
    window_s = ground.stage.wait_window()
    detail = f"at {at}; ended after {ended_s:.1f} s with {service.ends[-1].code}; commits after {moved_s:.1f} s"
    ground.report(f"driver of {way}, {name or 'all'} killed", f"{detail}, a window {window_s:.1f} s later")


@pytest.mark.parametrize("way", WAYS)
def test_sigterm_to_the_process_group_ends_the_stream_with_its_summary(
    ground: Ground, start: Callable[[str], StreamService], way: str
) -> None:
    service = start(way)
    began = time.monotonic()
    end = service.terminate()
    took_s = time.monotonic() - began
    ground.report(f"SIGTERM to {way}", f"exit code {end.code} after {took_s:.1f} s")
    if way == "submit":
        assert end.code == BY_SIGTERM, "spark-submit's JVM is the service, and Python ends with it"
        return
    assert end.code == 0, service.tail()
    summary = json.loads(service.out_file.read_text().splitlines()[-1])
    assert summary["ok"]
    assert summary["batches"] > 0


def test_a_minute_without_cassandra_delays_only_the_loader(
    ground: Ground, start: Callable[[str], StreamService]
) -> None:
    start("run")
    with CassandraNode() as node:
        history = ("--history", f"cassandra://{node.host}:{node.port}/drills")
        tsdb_ok("history", "create", *ground.log, *history, "--replication", "1")
        with Role(ground.folder, "loader", *ground.access, *history), HistoryFactory(history[1]) as histories:
            store = histories.open()
            wait_until(lambda: bool(rows_of(store)), LOADED_WITHIN_S)
            node.process.stop()
            try:
                time.sleep(AWAY_S)  # The time that it is away.
                moved_s = ground.stage.wait_moved()
            finally:
                node.process.start()
                node.wait_ready()
            mended_at = time.monotonic()
            want = ground.stage.chunk_records()
            wait_until(lambda: has_rows(store, want), LOADED_WITHIN_S)
            loaded_s = time.monotonic() - mended_at
    detail = f"away {AWAY_S:g} s; commits go on meanwhile, {moved_s:.1f} s; all {len(want)} chunks in history"
    ground.report("cassandra", f"{detail} {loaded_s:.1f} s after its end")


def test_rebuild_and_a_python_chunker_make_the_same_of_the_log(
    ground: Ground, services: dict[str, StreamService], tmp_path: Path
) -> None:
    for service in services.values():
        service.close()
    checked = ground.stage.check()
    windows = ground.stage.emitted_windows()
    span = "--from", str(windows.start_ms), "--to", str(windows.end_ms)
    done = run_tsdb(*ground.job("rebuild", *span, "--compare", "--output", "json"))
    assert done.returncode == 0, done.stdout + done.stderr
    log, clock = ground.logs.open(), FastClock(SystemClock().now_ms(), 0.0)
    with empty_logs([LogFactory(f"sqlite:///{tmp_path}/again.db", "")], PARTITIONS, clock) as again:
        assert_reruns_equal(log, again, PARTITIONS, clock, kills=ONE_COPY, seed=502)
    print(f"\nrebuild --compare and a Python chunker: {checked}; {done.stdout.decode().splitlines()[-1]}")


def has_rows(store: ChunkStore, want: Written) -> bool:
    """Whether history answers again, and has these rows."""
    try:
        return want <= rows_of(store)
    except Unavailable:
        return False


def rows_of(store: ChunkStore) -> Written:
    """Keys and values of all rows of history."""
    pieces = (piece for split in store.row_splits(3) for piece in store.scan(split))
    return {(encode_key(row.key), row.value) for piece in pieces for row in piece}
