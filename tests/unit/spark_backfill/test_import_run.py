"""A job id means one input on one log: every run of it, on any machine, writes with the same ticks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_backfill.writing.import_run import DAY_MS, begin_run, check_job_id, find_run
from support.servers.logs import LogFactory
from tsdb.codec.records.log_record import FLAG_IMPORT_TICK, decode_records
from tsdb.log.interface import META, METRICS, Log
from tsdb.log.records import read_batches
from tsdb.model.clock import ManualClock
from tsdb.model.errors import ConfigMismatch, InvalidRequest, UnknownVersion, WrongTopic
from tsdb.model.time_set import PRODUCTION

CLOCK = ManualClock(1_700_000_000_000)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogFactory]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(partitions=3)
        yield factory


@pytest.fixture
def log(logs: LogFactory) -> Log:
    return logs.open()


def test_a_run_ticks_the_partitions_it_touches_and_no_other(log: Log) -> None:
    run = begin_run(log, "job", [0, 2], "print", CLOCK)
    assert run.orders == {0: 0, 2: 0}
    assert [log.watermarks(METRICS, [p])[p].high for p in range(3)] == [1, 0, 1]
    batch = next(read_batches(log, METRICS, 0))
    assert decode_records(batch.values, batch.value_starts).flags.tolist() == [FLAG_IMPORT_TICK]
    newest = max(tick.broker_ms for tick in run.ticks.values())
    assert run.end_ms(PRODUCTION) <= newest - PRODUCTION.least_hold_ms - DAY_MS


def test_a_rerun_and_a_twin_write_with_the_ticks_of_the_first(log: Log, logs: LogFactory) -> None:
    first = begin_run(log, "job", [0, 1], "print", CLOCK)
    assert begin_run(logs.open(), "job", [0, 1], "print", CLOCK) == first
    assert begin_run(log, "other", [0, 1], "print", CLOCK).orders == {0: 1, 1: 1}
    assert find_run(log, "jo") is None


def test_of_two_at_once_the_first_in_meta_stands(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_backfill.writing import import_run

    twins = []
    tick = import_run._tick

    def tick_beside_a_twin(*given: object) -> object:
        """A twin begins after we have looked and before we have written."""
        monkeypatch.setattr(import_run, "_tick", tick)
        ticks = tick(*given)  # type: ignore[arg-type]
        twins.append(begin_run(log, "job", [0], "print", CLOCK))
        return ticks

    monkeypatch.setattr(import_run, "_tick", tick_beside_a_twin)
    assert begin_run(log, "job", [0], "print", CLOCK) == twins[0]
    assert twins[0].orders == {0: 1}, "the twin's tick came second, its record first"


def test_another_input_or_log_needs_another_job_id(log: Log) -> None:
    begin_run(log, "job", [0], "print", CLOCK)
    for partitions, fingerprint in (([0], "another"), ([0, 1], "print")):
        with pytest.raises(ConfigMismatch, match="another"):
            begin_run(log, "job", partitions, fingerprint, CLOCK)
    value = b'{"version":1,"topic_id":"gone","fingerprint":"print","ticks":{"0":[1,2]}}'
    log.append_sync(META, 0, value, key=b"import/elsewhere/1")
    with pytest.raises(WrongTopic, match="began on log gone"):
        begin_run(log, "elsewhere", [0], "print", CLOCK)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b'{"version":2}', UnknownVersion),
        (b"{", ConfigMismatch),
        (b"[]", ConfigMismatch),
        (b'{"version":1}', ConfigMismatch),
    ],
)
def test_a_record_that_does_not_parse_is_named(log: Log, value: bytes, error: type[Exception]) -> None:
    log.append_sync(META, 0, value, key=b"import/job/1")
    with pytest.raises(error, match="import job"):
        find_run(log, "job")


@pytest.mark.parametrize("job_id", ["", "a/b", "x" * 101, "ü"])
def test_a_job_id_is_plain(job_id: str) -> None:
    with pytest.raises(InvalidRequest, match="job id"):
        check_job_id(job_id)
