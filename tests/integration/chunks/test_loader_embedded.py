"""A loader over an embedded log and history: all samples covered by `loaded` are there, after any fault of a loader."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.data.chunk_topics import Expected, append_entries, chunk_entry, staged
from support.fakes.fake_chunk_store import FakeChunkStore, away
from support.servers.histories import HistoryFactory
from support.servers.loaders import OPTIONS, assert_holds, is_loaded, run_and_kill
from support.servers.logs import LogFactory, poll_until, records_of, wait_until
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import Loader
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, METRICS, SERIES, Log, LogRecord, Position, TopicPartition
from tsdb.model.clock import SystemClock
from tsdb.parallel_consumer import HandlerStopped, MetadataRefused

PARTITIONS = 3
DRILL_KILLS = 10


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(partitions=PARTITIONS)
        yield factory.open()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChunkStore]:
    with HistoryFactory(f"sqlite:///{tmp_path}/history.db") as factory:
        factory.create()
        yield factory.open()


def filled(log: Log, windows: int = 6, packs: int = 5, seed: int = 1) -> Expected:
    entries, expected = staged(log.topic_id(METRICS), PARTITIONS, windows, packs, seed)
    append_entries(log, entries)
    return expected


class Running:
    """A loader that is drained at the end of the context."""

    def __init__(self, log: Log, store: ChunkStore | FakeChunkStore) -> None:
        self.loader = Loader(log, store, OPTIONS, SystemClock(), seed=1)

    def __enter__(self) -> Loader:
        self.loader.start()
        return self.loader

    def __exit__(self, *raised: object) -> None:
        self.loader.close()
        if raised[0] is None:
            assert self.loader.join(20.0)
        else:
            self.loader.abort()


def dead_letters(log: Log) -> list[LogRecord]:
    starts = {(CHUNKS_DLQ, number): 0 for number in range(PARTITIONS)}
    with log.reader(starts) as reader:
        ends = {number: marks.high for number, marks in log.watermarks(CHUNKS_DLQ, range(PARTITIONS)).items()}
        return records_of(poll_until(reader, lambda events: len(records_of(events)) >= sum(ends.values())))


def test_history_holds_exactly_what_the_topics_say(log: Log, store: ChunkStore) -> None:
    expected = filled(log)
    with Running(log, store):
        wait_until(lambda: is_loaded(log) and len(store.loaded(log.topic_id(METRICS))) == PARTITIONS)
    assert_holds(store, log, expected)
    assert dead_letters(log) == []


def test_a_loader_goes_on_where_the_last_one_was_and_says_more_is_loaded(log: Log, store: ChunkStore) -> None:
    filled(log)
    with Running(log, store):
        wait_until(lambda: is_loaded(log) and len(store.loaded(log.topic_id(METRICS))) == PARTITIONS)
    before = store.loaded(log.topic_id(METRICS))
    expected = filled(log, windows=9)
    with Running(log, store):
        wait_until(lambda: is_loaded(log) and store.loaded(log.topic_id(METRICS)) == expected.loaded)
    assert all(before[number].position < expected.loaded[number].position for number in range(PARTITIONS))


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_instants_it_loses_nothing_and_never_says_too_much(
    log: Log, store: ChunkStore, seed: int
) -> None:
    expected, source = filled(log, windows=10, packs=8, seed=seed), random.Random(seed)
    struck = 0
    for _ in range(DRILL_KILLS):
        struck += run_and_kill(log, store, source.randrange(1, 60))
        for number, loaded in store.loaded(log.topic_id(METRICS)).items():
            assert_all_below_is_there(store, expected, number, loaded.position)
    assert struck >= DRILL_KILLS // 2, "most kills must find the loader at work"
    with Running(log, store):
        wait_until(lambda: is_loaded(log) and store.loaded(log.topic_id(METRICS)) == expected.loaded)
    assert_holds(store, log, expected)
    assert dead_letters(log) == []


def assert_all_below_is_there(store: ChunkStore, expected: Expected, partition: int, position: int) -> None:
    """Every chunk that the stage wrote before the marker with this position is a row, unless it is deleted later."""
    held = {row.key for split in store.row_splits(1) for piece in store.scan(split) for row in piece}
    for key in expected.rows:
        if (key.pack_id - 1) // 1_000 == partition and key.order < position:
            assert key in held, f"loaded says {position}, and {key} is not there"


def test_a_history_that_was_dropped_is_loaded_from_zero_whatever_was_committed(log: Log, tmp_path: Path) -> None:
    expected = filled(log)
    for name in ("first", "second"):
        with HistoryFactory(f"sqlite:///{tmp_path}/{name}.db") as factory:
            factory.create()
            store = factory.open()
            with Running(log, store):
                wait_until(lambda store=store: store.loaded(log.topic_id(METRICS)) == expected.loaded)  # type: ignore[misc]
            assert_holds(store, log, expected)


def test_an_outage_blocks_shows_in_readiness_and_diverts_nothing(log: Log) -> None:
    expected, store = filled(log), FakeChunkStore()
    store.fault = lambda kind: None if kind == "read_loaded" else away(kind)
    with Running(log, store) as loader:
        wait_until(lambda: {one.reason for one in loader.health().values()} == {"history_blocked"})
        health = loader.health()[0]
        assert not health.ready
        assert "does not answer" in str(health.details["message"])
        assert health.details["chunks_lag_records"]
        assert loader.stalled() == ""
        store.fault = lambda kind: None
        wait_until(lambda: is_loaded(log) and store.loaded(log.topic_id(METRICS)) == expected.loaded)
        wait_until(lambda: all(one.ready for one in loader.health().values()))
        assert loader.health()[0].details["chunks_lag_records"] == 0
    assert store.rows == expected.rows
    assert dead_letters(log) == []


def test_a_history_away_at_the_start_is_waited_for(log: Log) -> None:
    expected, store = filled(log), FakeChunkStore()
    store.fault = away
    with Running(log, store) as loader:
        wait_until(lambda: loader.failure() is None)
        assert store.writes == []
        store.fault = lambda kind: None
        wait_until(lambda: is_loaded(log) and store.loaded(log.topic_id(METRICS)) == expected.loaded)
    assert store.rows == expected.rows


def test_a_chunk_that_cannot_be_read_is_a_hole_and_a_dead_letter_and_the_partition_goes_on(
    log: Log, store: ChunkStore
) -> None:
    bad = ChunkKey(1, 0, Kind.BASE, 3, 0)
    append_entries(log, [chunk_entry(0, bad, b"garbage"), chunk_entry(0, bad, bytes(600_000))])
    expected = filled(log)
    with Running(log, store):
        wait_until(lambda: is_loaded(log) and store.loaded(log.topic_id(METRICS)) == expected.loaded)
    window_ms = OPTIONS.time_set.window_ms
    expected.holes += [
        HoleRecord(0, 1, 0, window_ms, "corrupt_chunk", 0),
        HoleRecord(0, 1, 0, window_ms, "chunk_too_large", 1),
    ]
    assert_holds(store, log, expected)
    letters = dead_letters(log)
    assert sorted(len(letter.value or b"") for letter in letters) == [7, 600_000]
    headers = [dict(letter.headers) for letter in letters]
    assert {one["dlq-topic"] for one in headers} == {b"chunks"}
    assert {one["dlq-offset"] for one in headers} == {b"0", b"1"}
    assert {one["dlq-exception"] for one in headers} == {b"tsdb.history.loader.errors.NotLoadable"}


def test_a_bug_ends_the_loader_and_names_the_record(log: Log) -> None:
    filled(log)
    store = FakeChunkStore()

    def broken(kind: str) -> None:
        if kind == "chunk":
            raise ZeroDivisionError("a bug")

    store.fault = broken
    loader = Loader(log, store, OPTIONS, SystemClock(), seed=1)
    loader.start()
    wait_until(lambda: loader.failure() is not None)
    loader.close()
    with pytest.raises(HandlerStopped, match=r"topic chunks, partition \d, offset \d+: ZeroDivisionError"):
        loader.join(20.0)
    loader.abort()


def test_a_commit_that_is_not_ours_is_refused(log: Log, store: ChunkStore) -> None:
    filled(log)
    with Running(log, store):
        wait_until(lambda: is_loaded(log) and len(store.loaded(log.topic_id(METRICS))) == PARTITIONS)
    with log.group("loader") as member:
        member.join([CHUNKS], _Whatever(), followers={SERIES: CHUNKS})
        wait_until(lambda: bool(member.poll(0.02)) or len(member.assigned()) == 2 * PARTITIONS)
        member.commit({(CHUNKS, 1): Position(2, "from another tool")})
    loader = Loader(log, store, OPTIONS, SystemClock())
    loader.start()
    wait_until(lambda: loader.failure() is not None)
    loader.close()
    with pytest.raises(MetadataRefused, match="topic chunks, partition 1, commit of offset 2"):
        loader.join(20.0)
    loader.abort()


class _Whatever:
    """A listener of no opinion."""

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        return {place: at.next_offset if at else 0 for place, at in committed.items()}

    def on_revoked(self, partitions: object) -> None:
        """No effect: there is no commit to make."""

    def on_lost(self, partitions: object) -> None:
        """No effect: there is no work to drop."""
