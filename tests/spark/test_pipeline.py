"""The streaming chunk stage writes what the Python chunker writes: the same keys with the same bytes.

The guarantee under attack: whatever is killed, handed over or begun again, `chunks` holds what follows from the log.
"""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.jobs.rebuild.job import rebuild
from spark_backfill.pipeline.group_membership import GroupMembership
from support.data.recorded_log import BASE_MS, RecordedLog
from support.oracles.chunk_twin import Written
from support.servers.chunkers import (
    FastClock,
    assert_uninterrupted,
    chunker_options,
    committed,
    inside,
    running,
    uninterrupted,
    wait_emitted,
    windows_in,
    written_to,
)
from support.servers.logs import LogFactory, wait_until
from support.spark.pipeline_process import PipelineProcess
from support.spark.pipelines import WorkerKiller, build_options, pipeline_options, run_all, run_until, still
from support.spark.spark import places
from tsdb.chunks.late_scan import Windows
from tsdb.codec.chunk.chunk_kernels import MAGIC
from tsdb.codec.chunk.sections import SECTIONS_VERSION
from tsdb.log.interface import CHUNKS, METRICS, Log
from tsdb.log.topics import CREATE_TIME
from tsdb.model.errors import Unavailable, WrongTopic
from tsdb.model.time_set import DEMO

PARTITIONS = 3
RECORDED = RecordedLog(PARTITIONS, windows=4, empty_windows=3)
CLOCK = still(RECORDED.end_ms)
CHUNK_OF_DETAILS = bytes([MAGIC, SECTIONS_VERSION])


def record(logs: LogFactory) -> Log:
    """A log with the recording, in which time stands still."""
    logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
    log = logs.open(clock=CLOCK)
    RECORDED.write(log)
    return log


def chunks_of(log: Log) -> list[Written]:
    """Records of `chunks` by partition, after a check that an uninterrupted stage over the log gives the same."""
    found = [written_to(log, partition) for partition in range(PARTITIONS)]
    for partition, written in enumerate(found):
        assert written == uninterrupted(log, partition, DEMO)
        assert_uninterrupted(log, partition, DEMO)
    return found


def emitted(log: Log) -> int:
    """Every partition has emitted and committed windows up to here."""
    return min(committed(log, partition).emitted_through_ms for partition in range(PARTITIONS))


def is_alone(membership: GroupMembership) -> bool:
    membership.keep(0.1)
    return membership.is_alone


def join_beside(log: Log) -> None:
    with GroupMembership(log, CLOCK, alone_within_s=1.0):
        pass


@pytest.mark.variant("kafka")
def test_chunker_pipeline_and_rebuild_make_the_same_of_a_log(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path
) -> None:
    log = record(log_factory)
    totals = run_all(spark, log, places(log_factory), tmp_path / "checkpoint", clock=CLOCK)
    assert totals.items >= 8
    assert totals.batches > 1
    by_pipeline, through_ms = chunks_of(log), emitted(log)
    detailed = [value for written in by_pipeline for _, value in written if value[:2] == CHUNK_OF_DETAILS]
    assert len(detailed) > 20, "histograms and start timestamps are among them"

    with LogFactory(f"sqlite:///{tmp_path / 'second.db'}", "") as second:
        log = record(second)
        with running(log, chunker_options(), CLOCK) as chunker:
            wait_emitted(chunker, range(PARTITIONS), through_ms)
        assert chunks_of(log) == by_pipeline

    with LogFactory(f"sqlite:///{tmp_path / 'third.db'}", "") as third:
        log = record(third)
        windows = Windows(windows_in(by_pipeline[0])[0], through_ms)
        done = rebuild(spark, build_options(log, places(third)), windows)
        assert done.items >= 8
        assert [written_to(log, p) for p in range(PARTITIONS)] == [inside(each, windows) for each in by_pipeline]


@pytest.mark.soak
@pytest.mark.parametrize("log_factory", ["kafka"], indirect=True)
def test_a_driver_killed_with_all_it_began_goes_on_from_its_checkpoint_on_kafka(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path
) -> None:
    log = log_of_a_killed_driver(log_factory, tmp_path)
    run_all(spark, log, places(log_factory), tmp_path / "checkpoint", clock=CLOCK)
    chunks_of(log)


@pytest.mark.soak  # Each run hands over between engines that were stopped in the middle.
@pytest.mark.parametrize("log_factory", ["sqlite"], indirect=True)
def test_a_driver_goes_on_from_the_checkpoint_of_a_killed_one_and_without_it_from_its_commits(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log_of_a_killed_driver(log_factory, tmp_path).close()
    for name, checkpoint in (("with", tmp_path / "checkpoint"), ("without", None)):
        copy = tmp_path / name
        copy.mkdir()
        for file in tmp_path.glob("log.db*"):
            shutil.copy(file, copy)
        with LogFactory(f"sqlite:///{copy}/log.db", log_factory.prefix) as logs:
            log = logs.open(clock=CLOCK)
            run_all(spark, log, places(logs), checkpoint, clock=CLOCK)
            chunks_of(log)
    assert not list(tmp_path.glob("tsdb-checkpoint-*")), "a run deletes its checkpoint"


def log_of_a_killed_driver(log_factory: LogFactory, tmp_path: Path) -> Log:
    """A recorded log, of which a driver made some chunks before it was killed with all that it began."""
    record(log_factory).close()  # One process at a time has the writer lock of an embedded log.
    process = PipelineProcess(log_factory.url, log_factory.prefix, tmp_path / "checkpoint", RECORDED.end_ms, tmp_path)
    log = log_factory.open(clock=CLOCK)
    try:
        wait_until(lambda: sum(m.high for m in log.watermarks(CHUNKS, range(PARTITIONS)).values()) > 30, 240.0)
        assert process.running, "it ended before it could be killed"
    finally:
        process.kill()
    return log


def test_python_workers_killed_in_mid_batch_leave_the_same_chunks(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path
) -> None:
    log = record(log_factory)
    with WorkerKiller(log) as killer:
        run_all(spark, log, places(log_factory), tmp_path / "checkpoint", clock=CLOCK)
    assert killer.killed, "no worker was there to kill"
    chunks_of(log)


def test_engines_that_hand_over_twice_in_mid_window_leave_the_same_chunks(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path
) -> None:
    """Each engine is stopped in whatever it does once it has emitted a window; the log grows by two before the next
    engine comes, so that there is always a window for it. Time stands still where the log ends for now: an engine that
    was quicker would tick it on."""
    recorded = RecordedLog(PARTITIONS, windows=10, empty_windows=3)
    parts = 5
    clock = still(BASE_MS)
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    log = log_factory.open(clock=clock)
    checkpoint = tmp_path / "checkpoint"
    options = pipeline_options(log, places(log_factory), checkpoint, trigger_s=0.0)
    through_ms = 0

    def write(part: int) -> None:
        recorded.write(log, part=part, of=parts)
        clock.base_ms = recorded.until_ms(part=part, of=parts)

    for part in range(0, parts - 1, 2):
        write(part)
        run_until(spark, log, options, clock, lambda: emitted(log) > through_ms)  # noqa: B023  # within this round
        through_ms = emitted(log)
        write(part + 1)
        with running(log, chunker_options(), clock, graceful=False):
            wait_until(lambda: emitted(log) > through_ms)  # noqa: B023  # within this round
        through_ms = emitted(log)
    write(parts - 1)
    run_all(spark, log, places(log_factory), checkpoint, clock=clock)
    chunks_of(log)


@pytest.mark.parametrize("log_factory", ["sqlite"], indirect=True)
def test_an_idle_log_is_ticked_until_everything_in_it_is_emitted(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path
) -> None:
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    recorded = RecordedLog(PARTITIONS, windows=1, closed=False)
    clock = FastClock(recorded.last_ms, 20.0)
    log = log_factory.open(clock=clock)
    recorded.write(log)
    options = pipeline_options(log, places(log_factory), tmp_path / "checkpoint", trigger_s=0.2)
    run_until(spark, log, options, clock, lambda: emitted(log) >= recorded.last_ms)
    for partition in range(PARTITIONS):
        assert windows_in(assert_uninterrupted(log, partition, DEMO))
    high = {p: marks.high for p, marks in log.watermarks(METRICS, range(PARTITIONS)).items()}
    # Ticks are few: one a window, however many pass while Spark gets going, and one for the last late minute.
    per_partition = recorded.records + 10 + (clock.now_ms() - recorded.last_ms) // DEMO.window_ms
    assert all(end < per_partition for end in high.values()), high


def test_a_pipeline_refuses_to_begin_beside_a_chunker_and_beside_another(log_factory: LogFactory) -> None:
    log = record(log_factory)
    with running(log, chunker_options(), CLOCK) as chunker:
        wait_until(lambda: len(chunker.statuses()) == PARTITIONS)
        with pytest.raises(Unavailable, match="another member of group chunks") as refused:
            join_beside(log)
        assert refused.value.reason == "group_in_use"
        wait_until(lambda: len(chunker.statuses()) == PARTITIONS)
    with GroupMembership(log, CLOCK) as first, ThreadPoolExecutor(1) as pool:
        second = pool.submit(join_beside, log)
        wait_until(lambda: not is_alone(first))
        wait_until(lambda: is_alone(first))
        assert isinstance(second.exception(), Unavailable)


@pytest.mark.parametrize("log_factory", ["sqlite"], indirect=True)
def test_a_checkpoint_of_another_incarnation_of_the_log_is_refused(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path
) -> None:
    log = record(log_factory)
    run_all(spark, log, places(log_factory), tmp_path / "checkpoint", clock=CLOCK)
    log.close()
    with LogFactory(f"sqlite:///{tmp_path / 'anew.db'}", "") as anew:
        log = record(anew)
        with pytest.raises(WrongTopic, match="begin with a new checkpoint") as refused:
            run_all(spark, log, places(anew), tmp_path / "checkpoint", clock=CLOCK)
        assert refused.value.reason == "checkpoint_topic"
        assert written_to(log, 0) == set()
