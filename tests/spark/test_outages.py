"""Attacks the promise that a job whose servers go away in its middle waits and goes on, or fails and says why, and
never leaves something partial that looks whole. They are frozen: connections stay, and nothing answers."""

from __future__ import annotations

import dataclasses
import json
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_backfill import register
from spark_backfill.failures import translate_spark_errors
from spark_backfill.jobs.imports.job import ImportOptions, import_files
from spark_backfill.jobs.rebuild.job import rebuild
from stack.cassandra import CassandraNode
from stack.kafka import KafkaCluster
from support.data.recorded_log import BASE_MS, RecordedLog
from support.oracles.chunk_twin import Written
from support.servers.chunkers import inside, uninterrupted, windows_in, written_to
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.shared_servers import contract_history
from support.spark.imports import ImportGround
from support.spark.pauses import FOLDER, PausingPlaces, PausingSource, Strike
from support.spark.pipelines import build_options, still
from support.spark.spark import places
from tsdb.chunks.late_scan import Windows
from tsdb.codec.chunk.key import ChunkKey, Kind, decode_key
from tsdb.history.settings import HistorySettings
from tsdb.log.settings import LogSettings
from tsdb.log.topics import CREATE_TIME
from tsdb.model.errors import Unavailable
from tsdb.model.import_layout import ImportLayout
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to

WAIT_S = 120.0
PAST_MS = 1_577_836_800_000
SERIES, STEPS = 24, 100
AWAY_S = 5.0
IMPATIENT = LogSettings(delivery_timeout_s=2.0, request_timeout_s=2.0)  # Timeouts below AWAY_S.
PARTITIONS = 2
FIRST_MS = ceil_to(BASE_MS, DEMO.window_ms)
WINDOWS = Windows(FIRST_MS, FIRST_MS + 3 * DEMO.window_ms)


@pytest.fixture(scope="module")
def kafka(broker: KafkaCluster) -> KafkaCluster:
    """A broker of this process, to freeze it."""
    return broker


@pytest.fixture
def beside_node(kafka: KafkaCluster, node: CassandraNode) -> Iterator[ImportGround]:
    """A log on Kafka and a history in a node of this process, to freeze it."""
    logs = LogFactory(f"kafka://{kafka.bootstrap}", f"t{uuid.uuid4().hex[:12]}.")
    histories = HistoryFactory(contract_history(node))
    with logs, histories, ImportGround(logs, histories) as ground:
        yield ground


def rows(file: Path) -> str:
    labels = [json.dumps({"__name__": f"m{n % 3}", "job": "j", "instance": f"i{n // 3}"}) for n in range(SERIES)]
    times = np.tile(PAST_MS + 500_000 * np.arange(STEPS), SERIES)
    values = np.arange(SERIES * STEPS, dtype=np.float64)
    pq.write_table(pa.table({"labels": np.repeat(labels, STEPS), "ts_ms": times, "value": values}), file)
    return str(file)


def import_rows(spark: SparkSession, ground: ImportGround, path: str, *, of: PausingPlaces | None = None) -> None:
    options = ImportOptions("outage", wait_s=WAIT_S)
    done = import_files(spark, [path], ImportLayout("parquet"), of or ground.places, ground.shared, options)
    assert done.samples == SERIES * STEPS


def test_an_import_waits_for_a_log_that_does_not_answer_and_then_goes_on(
    spark: SparkSession, servers: ImportGround, kafka: KafkaCluster, tmp_path: Path
) -> None:
    path = rows(tmp_path / "rows.parquet")
    pausing = PausingPlaces.of(servers.places, tmp_path / "pause", log_settings=IMPATIENT)
    with Strike(pausing, partial(kafka.suspend_broker, 0), partial(kafka.resume_broker, 0), AWAY_S) as strike:
        import_rows(spark, servers, path, of=pausing)
    assert strike.struck
    held = servers.held()
    assert sum(map(len, held.values())) == SERIES * STEPS
    import_rows(spark, servers, path)
    assert servers.held() == held


@pytest.mark.parametrize("log_factory", ["kafka"], indirect=True)
def test_a_rebuild_without_its_log_fails_and_marks_only_complete_windows(
    spark: SparkSession, log_factory: LogFactory, kafka: KafkaCluster, tmp_path: Path
) -> None:
    recorded = RecordedLog(PARTITIONS, windows=4)
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    log = log_factory.open(clock=still(recorded.end_ms))
    recorded.write(log)
    pausing = PausingPlaces.of(places(log_factory), tmp_path / "pause", log_settings=IMPATIENT)
    options = build_options(log, pausing, patience_s=2.0)
    with (
        Strike(pausing, partial(kafka.suspend_broker, 0), partial(kafka.resume_broker, 0)) as strike,
        pytest.raises(Unavailable),
        translate_spark_errors(),
    ):
        rebuild(spark, options, WINDOWS)
    assert strike.struck
    want = [inside(uninterrupted(log, number, DEMO), WINDOWS) for number in range(PARTITIONS)]
    for number in range(PARTITIONS):
        written = written_to(log, number)
        assert written < want[number], "something is missing, and nothing else is there"
        for start_ms in windows_in(written):
            window = Windows(start_ms, start_ms + DEMO.window_ms)
            assert bases(inside(want[number], window)) <= written, "a marker without its chunks"
    rebuild(spark, build_options(log, places(log_factory)), WINDOWS)
    assert [written_to(log, number) for number in range(PARTITIONS)] == want


def bases(written: Written) -> Written:
    """The base chunks among these records."""
    keys = ((key, value, decode_key(key)) for key, value in written)
    return {(key, value) for key, value, decoded in keys if isinstance(decoded, ChunkKey) and decoded.kind is Kind.BASE}


@pytest.mark.soak  # In each run tests/fault/test_cassandra_outage.py holds that a read of a hung node is an error.
def test_a_history_that_does_not_answer_is_an_error_and_never_a_short_answer(
    spark: SparkSession, beside_node: ImportGround, node: CassandraNode, tmp_path: Path
) -> None:
    import_rows(spark, beside_node, rows(tmp_path / "rows.parquet"))
    register(spark)
    spark.dataSource.register(PausingSource)
    impatient = dataclasses.replace(
        beside_node.places, history_settings=HistorySettings(read_timeout_s=1.0, speculate_after_s=0.2)
    )
    pausing = PausingPlaces.of(impatient, tmp_path / "pause")
    frame = spark.read.format("tsdb_pausing").options(**impatient.options(), **{FOLDER: pausing.folder}, splits=8)
    stopped, continued = (partial(node.process.signal, number) for number in (signal.SIGSTOP, signal.SIGCONT))
    with Strike(pausing, stopped, continued) as strike, pytest.raises(Unavailable), translate_spark_errors():
        frame.load().count()
    assert strike.struck
    node.wait_ready()
    assert frame.load().count() == SERIES * STEPS
