"""The embedded log at its worst: a full disk, a second process, a bug in a callback, and the faults it injects."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.servers.logs import WITHIN_S, append_all, poll_until, read_to_end, read_values, records_of, wait_until
from tsdb.log.interface import METRICS, SERIES, Appended, EndOfLog, RecordBatch
from tsdb.log.open import open_topics
from tsdb.log.records import last_records
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite.appends import FaultPlan
from tsdb.log.sqlite.database import ERRORS
from tsdb.log.sqlite.log import SqliteLog
from tsdb.log.sqlite.reader import SqliteReader
from tsdb.log.topics import DAY_MS, topic_specs
from tsdb.model.clock import Clock, ManualClock, SystemClock
from tsdb.model.errors import CorruptData, Overloaded, TsdbError, Unavailable
from tsdb.ops.disk import disk_problem

NOW_MS = 1_700_000_000_000


class Logs:
    """Embedded logs over one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[SqliteLog] = []
        with open_topics(f"sqlite:///{path}") as admin:
            for spec in topic_specs(2):
                admin.create(spec)

    def open(
        self, faults: FaultPlan | None = None, settings: LogSettings | None = None, clock: Clock | None = None
    ) -> SqliteLog:
        log = SqliteLog(self.path, "", settings or LogSettings(), clock or SystemClock(), faults)
        self.opened.append(log)
        return log


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    logs = Logs(tmp_path / "log.db")
    yield logs
    for log in logs.opened:
        log.close()


def test_a_full_disk_refuses_appends_and_recovers(logs: Logs) -> None:
    log = logs.open(settings=LogSettings(embedded_bytes_max=2 * 1024 * 1024))
    stored: list[bytes] = []
    with pytest.raises(Unavailable) as full:
        _fill(log, stored)
    assert full.value.reason == "disk_full"
    assert full.value.retry_after_s is not None
    assert len(stored) > 3
    with open_topics(f"sqlite:///{logs.path}") as admin:
        admin.trim(METRICS, {0: len(stored) - 1})
    after = log.append_sync(METRICS, 0, b"after")
    with log.reader({(METRICS, 0): len(stored) - 1}) as reader:
        kept, last = records_of(read_to_end(reader))
    assert (kept.value or b"")[:2] == stored[-1]
    assert (last.offset, last.value) == (after.offset, b"after")


def test_a_full_disk_is_known_by_path_until_there_is_room_again_without_a_write(logs: Logs) -> None:
    log = logs.open(settings=LogSettings(embedded_bytes_max=2 * 1024 * 1024))
    stored: list[bytes] = []
    with pytest.raises(Unavailable):
        _fill(log, stored)
    known = disk_problem()
    assert known is not None
    assert known[0] == "disk_full"
    assert str(logs.path) in known[1]
    assert "bytes are free" in known[1]
    with open_topics(f"sqlite:///{logs.path}") as admin:
        admin.trim(METRICS, {0: len(stored) - 1})
    wait_until(lambda: disk_problem() is None, WITHIN_S)


def test_a_closed_log_is_no_trouble(logs: Logs) -> None:
    log = logs.open(settings=LogSettings(embedded_bytes_max=2 * 1024 * 1024))
    with pytest.raises(Unavailable):
        _fill(log, [])
    log.close()
    assert disk_problem() is None


def _fill(log: SqliteLog, stored: list[bytes]) -> None:
    noise = Random(1)  # Random bytes, because other bytes would be stored compressed.
    for i in range(100):
        log.append_sync(METRICS, 0, b"%02d" % i + noise.randbytes(100_000))
        stored.append(b"%02d" % i)


def test_a_second_process_may_read_but_not_write(logs: Logs) -> None:
    log = logs.open()
    append_all(log, METRICS, 0, [b"a"])
    script = (
        "import sys; from tsdb.log.open import open_log; from tsdb.model.errors import Unavailable\n"
        f"log = open_log('sqlite:///{logs.path}')\n"
        "print(log.watermarks('metrics', [0])[0].high)\n"
        "try: log.append_sync('metrics', 0, b'b')\n"
        "except Unavailable as error: print(error.reason, 'process' in error.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["1", "log_locked", "True"]
    log.close()
    assert logs.open().append_sync(METRICS, 0, b"b").offset == 1


def test_a_guest_appends_beside_the_process_that_holds_the_lock(logs: Logs) -> None:
    log = logs.open()
    append_all(log, METRICS, 0, [b"a"])
    script = (
        "from tsdb.log.open import open_log; from tsdb.log.settings import LogSettings\n"
        f"log = open_log('sqlite:///{logs.path}', settings=LogSettings(embedded_guest=True))\n"
        "print(log.append_sync('metrics', 0, b'b').offset)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["1"]
    assert log.append_sync(METRICS, 0, b"c").offset == 2


def test_records_of_another_process_are_seen(logs: Logs) -> None:
    reading = logs.open()
    with reading.reader({(METRICS, 0): 0}) as reader:
        read_to_end(reader)
        append_all(logs.open(), METRICS, 0, [b"from another log object, as from another process"])
        assert len(read_values(reader, 1)) == 1


def test_a_look_that_fails_in_its_middle_swallows_no_record(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs.open()
    for partition in range(2):
        append_all(log, METRICS, partition, [b"a", b"b"])
    read, calls = SqliteReader._rows, count()

    def rows(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise Unavailable("the disk did not answer")
        return read(*arguments)

    monkeypatch.setattr(SqliteReader, "_rows", rows)
    with log.reader({(METRICS, 0): 0, (METRICS, 1): 0}) as reader:
        assert reader.poll(0.0) == []
        assert read_values(reader, 4) == [b"a", b"b"] * 2


def test_a_lost_answer_leaves_the_record_and_an_error(logs: Logs) -> None:
    log = logs.open(FaultPlan(ack_lost_share=1.0))
    with pytest.raises(Unavailable, match="answer was lost"):
        log.append_sync(METRICS, 0, b"x")
    with log.reader({(METRICS, 0): 0}) as reader:
        assert read_values(reader, 1) == [b"x"]


def test_a_failed_append_leaves_nothing(logs: Logs) -> None:
    log = logs.open(FaultPlan(failed_share=1.0))
    with pytest.raises(Unavailable, match="append failed"):
        log.append_sync(METRICS, 0, b"x")
    assert log.watermarks(METRICS, [0])[0].high == 0


def test_offsets_may_gap_also_at_the_end(logs: Logs) -> None:
    log = logs.open(FaultPlan(seed=1, gap_share=1.0, gap_max=5))
    acks = [log.append_sync(METRICS, 0, b"%d" % i) for i in range(10)]
    high = log.watermarks(METRICS, [0])[0].high
    assert high > acks[-1].offset + 1
    with log.reader({(METRICS, 0): 0}) as reader:
        events = read_to_end(reader)
    assert [record.offset for record in records_of(events)] == [ack.offset for ack in acks]
    assert events[-1] == EndOfLog(METRICS, 0, high)
    last = last_records(log, METRICS, [0])[0]
    assert last is not None
    assert last.offset == acks[-1].offset


def test_broker_times_are_shared_by_a_group_and_may_step_back(logs: Logs) -> None:
    clock = ManualClock(NOW_MS)
    log = logs.open(FaultPlan(seed=3, step_back_share=0.5, step_back_ms=500), clock=clock)
    times = []
    for _ in range(50):
        times.append(log.append_sync(METRICS, 0, b"x").broker_ms - clock.now_ms())
        clock.advance(100)
    assert set(times) == {0, -500}
    first_at = log.offsets_for_times(METRICS, {0: NOW_MS + 1000})[0]
    with log.reader({(METRICS, 0): 0}) as reader:
        records = records_of(read_to_end(reader))
    assert first_at == next(record.offset for record in records if record.broker_ms >= NOW_MS + 1000)


def test_appends_over_the_bound_are_refused(logs: Logs) -> None:
    class StandingClock(SystemClock):
        def sleep(self, seconds: float) -> None:
            assert released.wait(WITHIN_S)

    released = threading.Event()
    log = logs.open(
        FaultPlan(slow_share=1.0, slow_s=1.0), settings=LogSettings(queue_bytes_max=100_000), clock=StandingClock()
    )
    answers: list[Appended | TsdbError] = []
    for _ in range(2):
        log.append(METRICS, 0, bytes(40_000), on_done=answers.append)
    with pytest.raises(Overloaded) as full:
        log.append(METRICS, 0, bytes(40_000), on_done=answers.append)
    assert full.value.reason == "queue_full"
    with pytest.raises(Unavailable, match="not answered"):
        log.flush(0.01)
    released.set()
    log.flush(WITHIN_S)
    assert [type(answer) for answer in answers] == [Appended, Appended]


def test_a_bug_in_a_callback_is_raised_by_the_next_append_and_loses_no_answer(logs: Logs) -> None:
    log = logs.open()
    answers: list[Appended | TsdbError] = []

    def broken(answer: Appended | TsdbError) -> None:
        raise ValueError("a bug")

    log.append(METRICS, 0, b"1", on_done=broken)
    log.append(METRICS, 0, b"2", on_done=answers.append)
    with pytest.raises(ValueError, match="a bug"):
        log.flush(WITHIN_S)
    with pytest.raises(ValueError, match="a bug"):
        log.append(METRICS, 0, b"3", on_done=answers.append)
    log.close()
    assert len(answers) == 1


def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(CorruptData):
        SqliteLog(tmp_path / "log.db", "", LogSettings(), SystemClock())


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (sqlite3.SQLITE_FULL, Unavailable, "disk_full"),
        (sqlite3.SQLITE_IOERR_WRITE, Unavailable, "disk_error"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Unavailable, "log_locked"),
        (sqlite3.SQLITE_CORRUPT, CorruptData, "corrupt_data"),
        (sqlite3.SQLITE_MISUSE, TsdbError, "internal"),
    ],
)
def test_errors_of_sqlite_are_ours(code: int, kind: type[TsdbError], reason: str) -> None:
    error = sqlite3.OperationalError("words")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "NAME"
    ours = ERRORS.to_error(error, "here")
    assert type(ours) is kind
    assert (ours.reason, ours.message) == (reason, "here: words (NAME)")


def test_retention_drops_from_the_front_by_broker_time(logs: Logs) -> None:
    clock = ManualClock(NOW_MS)
    log = logs.open(clock=clock)
    for i in range(6):
        log.append_sync(METRICS, 0, b"%d" % i)
        clock.advance(DAY_MS)
    log.maintain()  # The log is kept for 5 days; record 0 is 6 days old, record 1 five.
    assert log.watermarks(METRICS, [0])[0].low == 1
    with log.reader({(METRICS, 0): 1}) as reader:
        assert read_values(reader, 5) == [b"%d" % i for i in range(1, 6)]
    clock.advance(100 * DAY_MS)
    log.maintain()
    marks = log.watermarks(METRICS, [0])[0]
    assert (marks.low, marks.high) == (6, 6)
    assert log.append_sync(METRICS, 0, b"on").offset == 6


def test_compaction_keeps_the_last_of_each_key_and_old_null_records_go(logs: Logs) -> None:
    clock = ManualClock(NOW_MS)
    log = logs.open(clock=clock)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", b"4"), (b"a", b"5")):
        log.append_sync(SERIES, 0, value, key=key)
    clock.advance(1)
    log.maintain()
    assert _kept(log) == [(3, b"b", None), (4, b"c", b"4"), (5, b"a", b"5")]
    assert log.watermarks(SERIES, [0])[0].low == 0
    clock.advance(DAY_MS)
    log.maintain()
    assert _kept(log) == [(4, b"c", b"4"), (5, b"a", b"5")]


def _kept(log: SqliteLog) -> list[tuple[int, bytes | None, bytes | None]]:
    with log.reader({(SERIES, 0): 0}) as reader:
        return [(record.offset, record.key, record.value) for record in records_of(read_to_end(reader))]


def test_maintenance_runs_by_itself(logs: Logs) -> None:
    clock = ManualClock(NOW_MS)
    log = logs.open(settings=LogSettings(embedded_maintain_s=0.02), clock=clock)
    log.append_sync(METRICS, 0, b"old")
    clock.advance(6 * DAY_MS)
    with log.reader({(METRICS, 0): 1}) as reader:
        poll_until(reader, lambda events: log.watermarks(METRICS, [0])[0].low == 1)


def test_no_partition_waits_for_ever_behind_a_busy_one(logs: Logs) -> None:
    log = logs.open()
    for partition in (0, 1):
        append_all(log, METRICS, partition, [b"x"] * 100)
    with log.reader({(METRICS, 0): 0, (METRICS, 1): 0}) as reader:
        turns = [event.partition for _ in range(4) for event in reader.poll(0, max_records=10)]
    assert sorted(turns) == [0, 0, 1, 1]


def test_polls_are_bounded_by_bytes_whatever_the_records_were_before(logs: Logs) -> None:
    log = logs.open()
    append_all(log, METRICS, 0, [b"x"] * 10 + [bytes(100_000)] * 10)
    with log.reader({(METRICS, 0): 0}) as reader:
        (batch,) = [event for event in reader.poll(0, max_bytes=150_000) if isinstance(event, RecordBatch)]
    assert len(batch.offsets) == 12
