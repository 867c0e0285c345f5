"""The chunk stage as a querier sees it: engine, lag, windows overdue and commits, also while nobody runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.logs import LogFactory
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.progress import Progress, encode_progress
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS, Group, Log, Position
from tsdb.log.lone_member import IdleListener
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import ManualClock
from tsdb.model.lag import LAG_UNKNOWN
from tsdb.model.time_set import DEMO
from tsdb.ops.metrics import registry
from tsdb.query.chunk_stage import SIGHT_MS_MAX, ChunkStageWatch

BEGIN_MS = 1_700_000_010_000  # The start of a window.
RECORDS = 10
TOO_LATE_MS = DEMO.window_ms + DEMO.grace_ms + DEMO.spread_ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGIN_MS)


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as factory:
        factory.create(2, timestamp_type=CREATE_TIME)
        made = factory.open(clock=clock)
        for _ in range(RECORDS):
            made.append_sync(METRICS, 0, encode_tick(), timestamp_ms=BEGIN_MS)
        yield made


@pytest.fixture
def watch(log: Log, clock: ManualClock) -> Iterator[ChunkStageWatch]:
    made = ChunkStageWatch(log, DEMO, clock)
    yield made
    made.close()
    assert made.join(60.0)


def commit(member: Group, log: Log, progress: Progress) -> None:
    position = Position(progress.position, encode_progress(progress, log.topic_id(METRICS)))
    member.commit({(METRICS, partition): position for partition in (0, 1)})


def joined(log: Log, name: str) -> Group:
    member = log.group(GROUP_ID, name)
    member.join([METRICS], IdleListener(log))
    while len(member.assigned()) < 2:
        member.poll(0.01)
    return member


def members(engine: str) -> float | None:
    return registry.get_sample_value("tsdb_query_chunk_stage_members", {"engine": engine})


def overdue(partition: int) -> float | None:
    return registry.get_sample_value("tsdb_query_chunk_stage_windows_overdue", {"partition": str(partition)})


def test_without_a_chunk_stage_windows_become_overdue_from_the_first_look_on(
    log: Log, watch: ChunkStageWatch, clock: ManualClock
) -> None:
    assert watch.state() is None
    watch.look()
    seen = watch.state()
    assert seen is not None
    assert (list(seen.engines), seen.members, seen.windows_overdue) == ([], 0, 0)
    assert not seen.HasField("emitted_through_ms")
    clock.advance(2 * TOO_LATE_MS)
    watch.look()
    assert overdue(0) == overdue(1) == 2
    assert members("python") == members("spark") == members("unknown") == 0


@pytest.mark.parametrize(("name", "engine"), [("python", "python"), ("spark", "spark"), ("", "unknown")])
def test_members_show_the_engine_and_commits_its_progress(
    name: str, engine: str, log: Log, watch: ChunkStageWatch, clock: ManualClock
) -> None:
    with joined(log, name) as member:
        commit(member, log, Progress(4, BEGIN_MS))
        watch.look()
        seen = watch.state()
        assert seen is not None
        assert (list(seen.engines), seen.members, seen.lag_records) == ([engine], 1, RECORDS - 4 - 4)
        assert (seen.emitted_through_ms, seen.HasField("last_commit_ms")) == (BEGIN_MS, False)
        clock.advance(1_000)
        commit(member, log, Progress(6, BEGIN_MS))
        watch.look()
        assert members(engine) == 1
        assert (watch.state() or seen).last_commit_ms == BEGIN_MS + 1_000
    watch.look()
    assert members(engine) == 0


def test_a_stage_that_stands_still_shows_its_windows_as_overdue(
    log: Log, watch: ChunkStageWatch, clock: ManualClock
) -> None:
    with joined(log, "python") as member:
        commit(member, log, Progress(4, BEGIN_MS))
        clock.advance(TOO_LATE_MS - 1)
        watch.look()
        assert overdue(0) == 0
        clock.advance(1)
        watch.look()
        assert overdue(0) == 1
        commit(member, log, Progress(4, BEGIN_MS + DEMO.window_ms))
        watch.look()
        assert overdue(0) == 0


def test_a_look_that_fails_is_counted_and_leaves_the_last_one(log: Log, watch: ChunkStageWatch) -> None:
    watch.look()
    before = watch.state()
    log.close()
    failed = registry.get_sample_value("tsdb_query_chunk_stage_looks_total") or 0.0
    watch.look()
    assert registry.get_sample_value("tsdb_query_chunk_stage_looks_total") == failed + 1
    assert watch.state() == before


def test_a_lag_of_0_is_not_known_once_looks_fail_for_a_while(
    log: Log, watch: ChunkStageWatch, clock: ManualClock
) -> None:
    def shown() -> float | None:
        return registry.get_sample_value("tsdb_query_chunk_stage_lag_records", {"partition": "0"})

    member = joined(log, "chunker")
    commit(member, log, Progress(RECORDS, BEGIN_MS))
    watch.look()
    seen = watch.state()
    assert seen is not None
    assert shown() is not None
    log.close()
    clock.advance(SIGHT_MS_MAX + 1)
    watch.look()
    later = watch.state()
    assert later is not None
    assert (later.lag_records, shown()) == (LAG_UNKNOWN, -1)
