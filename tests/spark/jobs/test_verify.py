"""Verify finds missing, damaged and extra rows in `chunks` and history, reports nothing else, and repairs each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import range_of
from spark_backfill.jobs.verify.compare import compare
from spark_backfill.jobs.verify.job import VerifyOptions, _Run, verify
from spark_backfill.result import VerifyResult
from support.data.recorded_log import BASE_MS, RecordedLog
from support.servers.histories import HistoryFactory
from support.servers.loaders import is_loaded
from support.servers.logs import LogFactory, wait_until
from support.shared_servers import contract_history
from support.spark.pipelines import build_options, run_all, still
from support.spark.spark import places
from tsdb.chunks.late_scan import Windows
from tsdb.codec.chunk.key import ChunkKey, Kind, WindowKey, decode_key, encode_key
from tsdb.history.interface import ChunkRow, ChunkStore
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.history.writes import write_sync
from tsdb.log.interface import CHUNKS, METRICS, Log
from tsdb.log.records import read_to_end
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.errors import InvalidRequest, TsdbError
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to

PARTITIONS = 2
FIRST_MS = ceil_to(BASE_MS, DEMO.window_ms) + DEMO.window_ms
RANGE = Windows(FIRST_MS, FIRST_MS + 3 * DEMO.window_ms)


Damage = tuple[ChunkKey | WindowKey, str, str]
"""A damaged place, and the kind of damage."""


class Ground:
    """A recorded log that a pipeline made chunks of, which a loader that goes on took to history."""

    def __init__(self, log: Log, history: ChunkStore, build: BuildOptions) -> None:
        self.log = log
        self.history = history
        self.build = build

    def verify(self, spark: SparkSession, *, mend: bool = False) -> VerifyResult:
        """The windows in the middle of the recording."""
        return verify(spark, self.build, VerifyOptions(RANGE, mend=mend, loader_timeout_s=60.0))

    def rows(self, kind: Kind) -> list[ChunkRow]:
        """Rows of one kind in the range, always in the same order."""
        rows = (row for split in self.history.row_splits(2) for piece in self.history.scan(split) for row in piece)
        return sorted(
            (row for row in rows if row.key.kind is kind and self.holds(row.key)), key=lambda row: str(row.key)
        )

    def everything(self) -> dict[ChunkKey, bytes]:
        """Every row and loss in history."""
        pieces = (piece for split in self.history.row_splits(2) for piece in self.history.scan(split))
        return {row.key: row.value for piece in pieces for row in piece}

    def partition_of(self, key: bytes) -> int:
        """The partition of `chunks` that has a key."""
        return next(p for p in range(PARTITIONS) if any(found == key for found, _ in written(self.log, p)))

    @staticmethod
    def holds(key: ChunkKey) -> bool:
        return RANGE.start_ms <= key.window_start_ms < RANGE.end_ms

    def append(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Append records to `chunks`, and wait until history has them."""
        self.log.append_sync(CHUNKS, partition, value, key=key)
        wait_until(lambda: is_loaded(self.log))


def written(log: Log, partition: int) -> list[tuple[bytes, bytes | None]]:
    return [(record.key or b"", record.value) for record in read_to_end(log, CHUNKS, partition)]


@pytest.fixture
def ground(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Ground]:
    recorded = RecordedLog(PARTITIONS, windows=6)
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    clock = still(recorded.end_ms)
    log = log_factory.open(clock=clock)
    recorded.write(log)
    if log_factory.is_kafka:
        node = request.getfixturevalue("cassandra")
        url = contract_history(node)
    else:
        url = f"sqlite:///{tmp_path / 'history.db'}"
    with HistoryFactory(url) as factory:
        factory.create()
        where = places(log_factory, factory)
        run_all(spark, log, where, tmp_path / "checkpoint", clock=clock)
        write_an_import(log)
        history = factory.open()
        loader = Loader(log, history, LoaderOptions(DEMO, commit_interval_s=0.02), SystemClock(), seed=1)
        loader.start()
        wait_until(lambda: is_loaded(log) and len(history.loaded(log.topic_id(METRICS))) == PARTITIONS)
        yield Ground(log, history, build_options(log, where))
        loader.close()
        assert loader.join(30.0)


def write_an_import(log: Log) -> None:
    """A chunk that the log does not give: `chunks` has it alone."""
    for key, value in written(log, 0):
        decoded = decode_key(key)
        if isinstance(decoded, ChunkKey) and decoded.kind is Kind.BASE and Ground.holds(decoded):
            log.append_sync(CHUNKS, 0, value, key=encode_key(dataclasses.replace(decoded, kind=Kind.IMPORT, order=0)))
            return
    raise AssertionError("no base chunk in the range")


def lose_a_row(ground: Ground) -> Damage:
    key = ground.rows(Kind.BASE)[0].key
    write_sync(lambda done: ground.history.delete_covered([key], done), 10.0)
    return key, "history", "missing"


def lose_an_import(ground: Ground) -> Damage:
    (row,) = ground.rows(Kind.IMPORT)
    write_sync(lambda done: ground.history.delete_covered([row.key], done), 10.0)
    return row.key, "history", "missing"


def flip_a_byte(ground: Ground) -> Damage:
    row = ground.rows(Kind.BASE)[1]
    flipped = row.value[:30] + bytes([row.value[30] ^ 1]) + row.value[31:]
    write_sync(lambda done: ground.history.write(row.key, flipped, done), 10.0)
    return row.key, "history", "differing"


def lose_a_late_chunk(ground: Ground) -> Damage:
    key = ground.rows(Kind.LATE)[0].key
    ground.append(ground.partition_of(encode_key(key)), encode_key(key), None)
    return key, "chunks", "missing"


def lose_a_window(ground: Ground) -> Damage:
    start_ms = RANGE.end_ms - DEMO.window_ms
    for key, _ in written(ground.log, 1):
        decoded = decode_key(key)
        if isinstance(decoded, ChunkKey | WindowKey) and decoded.window_start_ms == start_ms:
            ground.append(1, key, None)
    return WindowKey(start_ms), "chunks", "missing"


def add_a_series(ground: Ground) -> Damage:
    row = ground.rows(Kind.BASE)[2]
    other = ChunkKey(row.key.pack_id ^ 1, row.key.window_start_ms, Kind.BASE, row.key.order, 0)
    write_sync(lambda done: ground.history.write(other, row.value, done), 10.0)
    return other, "history", "extra"


DAMAGES = (lose_a_row, lose_an_import, flip_a_byte, lose_a_late_chunk, add_a_series, lose_a_window)


def test_every_damage_is_found_and_mended(spark: SparkSession, ground: Ground) -> None:
    clean = ground.verify(spark)
    assert clean.ok, clean.as_dict()
    assert clean.items >= 8
    compared = compare(spark, ground.build, RANGE)
    assert (compared.job, compared.ok) == ("rebuild --compare", True), compared.as_dict()
    before = ground.everything()
    damages = [damage(ground) for damage in DAMAGES]

    found = ground.verify(spark)
    assert not found.ok
    for damage in damages:
        assert shown(damage) in [dataclasses.astuple(row)[:5] for row in found.rows], (damage, found.rows)

    mended = ground.verify(spark, mend=True)
    assert mended.ok, mended.as_dict()
    assert mended.repaired == mended.found == found.problems == sum(row.keys for row in found.rows)
    assert ground.everything() == before


@pytest.mark.parametrize("log_factory", ["sqlite"], indirect=True)
def test_records_written_since_the_plan_are_no_findings(spark: SparkSession, ground: Ground) -> None:
    """The chunk stage, folds and imports go on while a verification reads."""
    run = _Run(spark, ground.build, VerifyOptions(RANGE), SystemClock())
    row, gone = ground.rows(Kind.BASE)[0], ground.rows(Kind.IMPORT)[0]
    fresh = dataclasses.replace(row.key, kind=Kind.IMPORT, order=1 << 40)
    ground.append(ground.partition_of(encode_key(row.key)), encode_key(fresh), row.value)
    ground.append(ground.partition_of(encode_key(gone.key)), encode_key(gone.key), None)
    assert {fresh} == {row.key for row in ground.rows(Kind.IMPORT)}
    lost, _, _ = lose_a_row(ground)
    with run.compared() as findings:
        assert [finding.key for finding in findings.collect()] == [lost], "damage is still found"


def shown(damage: Damage) -> tuple[int, str, str, str, str]:
    """The first fields of a row of the report."""
    key, place, problem = damage
    pack, kind = (f"{key.pack_id:016x}", key.kind.name.lower()) if isinstance(key, ChunkKey) else ("", "marker")
    return key.window_start_ms, pack, kind, place, problem


@pytest.mark.parametrize(
    ("windows", "kind", "reason"),
    [
        ((RANGE.start_ms + 1, RANGE.end_ms), InvalidRequest, "not_whole_windows"),
        ((RANGE.end_ms, RANGE.start_ms), InvalidRequest, "range_empty"),
        ((RANGE.start_ms, RANGE.end_ms + 100 * DEMO.window_ms), InvalidRequest, "too_recent"),
    ],
)
@pytest.mark.parametrize("log_factory", ["sqlite"], indirect=True)
def test_a_range_that_cannot_be_verified_is_refused(
    spark: SparkSession,
    log_factory: LogFactory,
    windows: tuple[int, int],
    kind: type[TsdbError],
    reason: str,
) -> None:
    recorded = RecordedLog(PARTITIONS, windows=1)
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    log = log_factory.open(clock=still(recorded.end_ms))
    recorded.write(log)
    with pytest.raises(kind) as refused:
        verify(spark, build_options(log, places(log_factory)), VerifyOptions(range_of(*windows, DEMO.window_ms)))
    assert refused.value.reason == reason
