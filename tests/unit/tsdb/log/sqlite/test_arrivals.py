"""Arrivals of an embedded log: readers get what their process appends from memory, each record once and in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.servers.logs import append_all, poll_until, read_to_end, read_values, records_of, wait_until
from tsdb.log.interface import METRICS, SERIES, EndOfLog, LogRecord, RecordBatch
from tsdb.log.open import open_topics
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite import arrivals
from tsdb.log.sqlite.appends import Append, FaultPlan
from tsdb.log.sqlite.log import SqliteLog
from tsdb.log.sqlite.reader import SqliteReader
from tsdb.log.sqlite.writer import LogWriter
from tsdb.log.topics import topic_specs
from tsdb.model.clock import SystemClock
from tsdb.model.errors import LostOffsets, TsdbError

PARTITIONS = 2


class Spied:
    """Counts the reads of the database by each reader, and the looks for commits of other processes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reads: dict[int, int] = {}
        self.looks = 0
        read, look = SqliteReader._read_database, LogWriter._look_for_others

        def spied_read(reader: SqliteReader, *bounds: Any) -> Any:
            self.reads[id(reader)] = self.reads.get(id(reader), 0) + 1
            return read(reader, *bounds)

        def spied_look(writer: LogWriter, connection: Any) -> None:
            look(writer, connection)
            self.looks += 1

        patch.setattr(SqliteReader, "_read_database", spied_read)
        patch.setattr(LogWriter, "_look_for_others", spied_look)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> Spied:
    return Spied(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_topics(f"sqlite:///{tmp_path}/log.db") as admin:
        for spec in topic_specs(PARTITIONS):
            admin.create(spec)
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    with SqliteLog(path, "", LogSettings(), SystemClock()) as log:
        yield log


def _listening(log: SqliteLog, reader: SqliteReader, spied: Spied) -> None:
    """Bring a reader to the end, after the first look for other processes, which lets all read the database."""
    looks = spied.looks
    poll_until(reader, lambda _events: log._arrivals.watches_others)

    def looked() -> bool:
        # The thread's first check, whenever it comes, finds no commit: only those after it lead to a look.
        append_all(log, METRICS, 0, [b"before"])
        return spied.looks > looks

    wait_until(looked)
    read_to_end(reader)
    poll_until(reader, lambda _events: reader._arrival._listens)


def test_a_reader_at_the_end_reads_no_row_that_its_process_has_written(log: SqliteLog, spied: Spied) -> None:
    with log.reader({(METRICS, 0): 0}) as reader:
        _listening(log, reader, spied)
        before = spied.reads[id(reader)]
        append_all(log, METRICS, 0, [b"x%d" % i for i in range(50)])
        assert read_values(reader, 50) == [b"x%d" % i for i in range(50)]
        assert spied.reads[id(reader)] == before


def test_records_from_memory_have_keys_headers_nulls_times_and_an_end(log: SqliteLog, spied: Spied) -> None:
    with log.reader({(METRICS, 0): 0, (SERIES, 1): 0}) as reader:
        _listening(log, reader, spied)
        log.append_sync(SERIES, 1, b"v", key=b"k", headers=[("h", b"\xff")])
        gone = log.append_sync(SERIES, 1, None, key=b"k2")
        events = poll_until(reader, lambda events: EndOfLog(SERIES, 1, 2) in events)
    records = records_of(events, SERIES)
    assert [(one.offset, one.key, one.value, list(one.headers)) for one in records] == [
        (0, b"k", b"v", [("h", b"\xff")]),
        (1, b"k2", None, []),
    ]
    assert records[1].broker_ms == gone.broker_ms


def test_a_commit_wakes_only_the_readers_of_its_partitions(log: SqliteLog, spied: Spied) -> None:
    with log.reader({(METRICS, 0): 0}) as reader, log.reader({(METRICS, 1): 0}) as other:
        _listening(log, reader, spied)
        read_to_end(other)
        seen, looks = other._arrival.count, spied.looks
        append_all(log, METRICS, 0, [b"x"])
        wait_until(lambda: spied.looks > looks)
        assert other._arrival.count == seen
        assert read_values(reader, 1) == [b"x"]


def test_a_reader_that_falls_behind_reads_the_database(
    log: SqliteLog, spied: Spied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "WAITING_BYTES_MAX", 1000)
    with log.reader({(METRICS, 0): 0}) as reader:
        _listening(log, reader, spied)
        before = spied.reads[id(reader)]
        append_all(log, METRICS, 0, [bytes(300)] * 10)
        assert read_values(reader, 10) == [bytes(300)] * 10
        assert spied.reads[id(reader)] > before


def test_polls_of_arrived_records_are_bounded(log: SqliteLog, spied: Spied) -> None:
    with log.reader({(METRICS, 0): 0}) as reader:
        _listening(log, reader, spied)
        with log._writer._changed:  # The writer begins no group meanwhile, so all go into one.
            answers: list[object] = []
            for _ in range(10):
                log._writer.put(_append(log, bytes(100), answers))
        log.flush(30)
        sizes = [
            len(event.offsets)
            for _ in range(5)
            for event in reader.poll(0.0, max_records=3)
            if isinstance(event, RecordBatch)
        ]
        assert sizes == [3, 3, 3, 1]
        append_all(log, METRICS, 0, [bytes(100)] * 10)
        (batch,) = [event for event in reader.poll(0.0, max_bytes=250) if isinstance(event, RecordBatch)]
        assert len(batch.offsets) == 3


def _append(log: SqliteLog, value: bytes, answers: list[object]) -> Any:
    return Append(METRICS, log.topic_id(METRICS), 0, value, None, (), None, answers.append, len(value))


@pytest.mark.parametrize("seed", range(6))
def test_readers_that_lag_rest_and_seek_get_what_the_database_holds(path: Path, seed: int) -> None:
    """Two processes append, with gaps, lost answers and failures, while readers poll, pause and seek as they like."""
    random = Random(seed)
    faults = FaultPlan(seed=seed, gap_share=0.3, ack_lost_share=0.1, failed_share=0.1)
    with (
        SqliteLog(path, "", LogSettings(), SystemClock(), faults) as log,
        SqliteLog(path, "", LogSettings(embedded_guest=True), SystemClock()) as guest,
    ):
        stop = threading.Event()
        appender = threading.Thread(target=_append_until, args=(stop, log, guest, Random(seed + 100)))
        appender.start()
        try:
            with log.reader({(METRICS, 0): 0, (METRICS, 1): 0}) as reader:
                got = _read_wildly(reader, random)
                stop.set()
                appender.join()
                _read_rest(log, reader, got)
        finally:
            stop.set()
            appender.join()
        for partition in range(PARTITIONS):
            with log.reader({(METRICS, partition): 0}) as fresh:
                stored = records_of(read_to_end(fresh))
            assert len(stored) > 20
            assert [got[partition][one.offset] for one in stored] == [(one.broker_ms, one.value) for one in stored]
            assert len(got[partition]) == len(stored)


def _append_until(stop: threading.Event, log: SqliteLog, guest: SqliteLog, random: Random) -> None:
    number = 0
    while not stop.is_set():
        target = guest if random.random() < 0.05 else log
        for _ in range(random.randint(1, 5)):
            target.append(METRICS, random.randrange(PARTITIONS), b"%d" % number, on_done=lambda _answer: None)
            number += 1
        target.flush(60)


def _read_wildly(reader: SqliteReader, random: Random) -> dict[int, dict[int, tuple[int, bytes | None]]]:
    """Every record once per run between two seeks, ascending. A seek goes back, so a record may come again, equal."""
    got: dict[int, dict[int, tuple[int, bytes | None]]] = {0: {}, 1: {}}
    at = {0: 0, 1: 0}

    def poll() -> None:
        for event in reader.poll(0.05, max_records=random.choice((1, 3, 1000)), max_bytes=random.choice((5, 1 << 20))):
            if isinstance(event, EndOfLog):
                assert event.next_offset >= at[event.partition]
                continue
            for record in records_of([event]):
                assert record.offset >= at[event.partition]
                _add(got[event.partition], record)
                at[event.partition] = record.offset + 1

    while min(map(len, got.values())) < 200:
        poll()
        if random.random() < 0.05:
            partition = random.randrange(PARTITIONS)
            reader.pause(METRICS, partition)
            poll()
            at[partition] = random.choice(sorted(got[partition])) if got[partition] else 0
            reader.seek(METRICS, partition, at[partition])
    return got


def _read_rest(log: SqliteLog, reader: SqliteReader, got: dict[int, dict[int, tuple[int, bytes | None]]]) -> None:
    highs = log.high_watermarks(METRICS, [0, 1])
    ends: dict[int, int] = {}
    while ends != highs:
        for event in reader.poll(1.0):
            if isinstance(event, EndOfLog):
                ends[event.partition] = event.next_offset
            else:
                for record in records_of([event]):
                    _add(got[event.partition], record)
        for partition in range(PARTITIONS):
            if partition not in ends:
                ends[partition] = reader._places[METRICS, partition].next_offset


def _add(got: dict[int, tuple[int, bytes | None]], record: LogRecord) -> None:
    assert got.setdefault(record.offset, (record.broker_ms, record.value)) == (record.broker_ms, record.value)


def test_a_trim_below_a_reader_that_lags_is_lost_offsets(log: SqliteLog, path: Path, spied: Spied) -> None:
    with log.reader({(METRICS, 0): 0, (METRICS, 1): 0}) as reader:
        _listening(log, reader, spied)
        reader.seek(METRICS, 0, 0)
        append_all(log, METRICS, 0, [b"x"] * 3)
        with open_topics(f"sqlite:///{path}") as admin:
            admin.trim(METRICS, {0: 3})
        with pytest.raises(LostOffsets) as lost:
            reader.poll(0.0)
        assert lost.value.reason == "below_low_watermark"


def test_a_recreated_topic_gives_none_of_its_records_to_a_reader_at_the_end(
    log: SqliteLog, path: Path, spied: Spied
) -> None:
    with log.reader({(METRICS, 0): 0}) as reader:
        _listening(log, reader, spied)
        with open_topics(f"sqlite:///{path}") as admin:
            admin.delete(METRICS)
            admin.create(next(spec for spec in topic_specs(PARTITIONS) if spec.name == METRICS))
        with pytest.raises(TsdbError) as other:
            log.append_sync(METRICS, 0, b"x")
        assert other.value.reason == "topic_recreated"
        with pytest.raises(TsdbError) as gone:
            poll_until(reader, lambda _events: False)
        assert gone.value.reason == "topic_recreated"
