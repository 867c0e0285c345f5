"""Topics, `meta` and start resolution, on the embedded log and on a real broker alike."""

from __future__ import annotations

import dataclasses

import pytest

from support.servers.logs import LogFactory, append_all
from tsdb.log.interface import META, METRICS, SERIES
from tsdb.log.meta import SETTINGS_KEY, check_meta, ensure_meta, read_meta, read_values, write_meta
from tsdb.log.records import first_records, last_records
from tsdb.log.start import Start, StartCase, find_start
from tsdb.log.topics import (
    CREATE_TIME,
    DAY_MS,
    ReplicaFaults,
    check_topics,
    create_topics,
    require_topics,
    topic_specs,
)
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import DEMO, PRODUCTION

NOW_MS = 1_700_000_000_000
HOLD_MS = 90_000
AHEAD_MS = DEMO.ahead_ms


def test_partitions_that_take_no_writes_are_counted(log_factory: LogFactory) -> None:
    """One replica that is in sync is below a min.insync.replicas of 2."""
    admin, (metrics, series, *_) = log_factory.topics(), topic_specs(3, replication=1)
    least = {**metrics.least, "min.insync.replicas": 2}
    for spec in (dataclasses.replace(metrics, least=least), series):
        admin.create(spec)
    states = [admin.describe(spec.name) for spec in (metrics, series)]
    found = [state.faults for state in states if state is not None]
    assert found == [ReplicaFaults(under_min_isr=3 if log_factory.is_kafka else 0), ReplicaFaults()]


def test_what_create_makes_passes_the_check(log_factory: LogFactory) -> None:
    admin, specs = log_factory.topics(), topic_specs(3, replication=1)
    assert create_topics(admin, specs) == [spec.name for spec in specs]
    assert check_topics(admin, specs) == []
    require_topics(admin, specs)
    assert create_topics(admin, specs) == []


def test_missing_topics_are_named(log_factory: LogFactory) -> None:
    admin, specs = log_factory.topics(), topic_specs(3, replication=1)
    assert [str(difference) for difference in check_topics(admin, specs)] == [
        f"topic {spec.name}: topic is missing, must be there" for spec in specs
    ]


def test_each_wrong_setting_is_named_with_what_it_must_be(log_factory: LogFactory) -> None:
    admin = log_factory.topics()
    metrics, series, *rest = topic_specs(3, replication=1)
    exact = {**metrics.exact, "cleanup.policy": "compact", "message.timestamp.type": CREATE_TIME}
    admin.create(dataclasses.replace(metrics, partitions=2, exact=exact, least={**metrics.least, "retention.ms": 1000}))
    for spec in (series, *rest):
        admin.create(spec)
    specs = (metrics, series, *rest)
    lines = sorted(str(difference) for difference in check_topics(admin, specs))
    assert lines == [
        "topic metrics: cleanup.policy is compact, must be delete",
        "topic metrics: message.timestamp.type is CreateTime, must be LogAppendTime",
        "topic metrics: partitions is 2, must be 3",
        f"topic metrics: retention.ms is 1000, must be {5 * DAY_MS} or more",
    ]
    with pytest.raises(ConfigMismatch) as refused:
        require_topics(admin, specs)
    assert all(line in refused.value.message for line in lines)
    with pytest.raises(ConfigMismatch):
        create_topics(admin, specs)


def test_more_than_the_least_is_well(log_factory: LogFactory) -> None:
    admin = log_factory.topics()
    for spec in topic_specs(1, replication=1, retention_ms=20 * DAY_MS):
        admin.create(spec)
    assert check_topics(admin, topic_specs(1, replication=1)) == []


def test_topics_with_written_timestamps_never_pass_the_check(log_factory: LogFactory) -> None:
    admin, specs = log_factory.topics(), topic_specs(1, replication=1, timestamp_type=CREATE_TIME)
    create_topics(admin, specs)
    assert {difference.setting for difference in check_topics(admin, specs)} == {"message.timestamp.type"}


def test_settings_are_written_once_and_checked_by_all(log_factory: LogFactory) -> None:
    log_factory.create()
    log = log_factory.open()
    settings = MetaSettings(2, time_set=DEMO)
    with pytest.raises(ConfigMismatch) as missing:
        check_meta(log, settings)
    assert "tsdb topics create" in missing.value.message
    assert read_meta(log) is None
    ensure_meta(log, settings)
    ensure_meta(log, settings)
    assert read_meta(log_factory.open()) == settings
    assert log.watermarks(META, [0])[0].high == 1


def test_each_differing_setting_is_named(log_factory: LogFactory) -> None:
    log_factory.create()
    log = log_factory.open()
    write_meta(log, MetaSettings(2, time_set=DEMO))
    with pytest.raises(ConfigMismatch) as differs:
        ensure_meta(log, MetaSettings(3, time_set=PRODUCTION))
    assert "partitions: this process has 3, meta has 2" in differs.value.message
    assert "time_set.window_ms: this process has 14400000, meta has 30000" in differs.value.message


def test_meta_that_does_not_parse_is_refused(log_factory: LogFactory) -> None:
    log_factory.create()
    log = log_factory.open()
    log.append_sync(META, 0, b"\xff\xff\xff", key=SETTINGS_KEY)
    with pytest.raises(ConfigMismatch, match="does not parse"):
        check_meta(log, MetaSettings(2))


def test_the_last_value_of_a_key_counts_and_null_removes_it(log_factory: LogFactory) -> None:
    log_factory.create()
    log = log_factory.open()
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)):
        log.append_sync(META, 0, value, key=key)
    assert read_values(log) == {b"a": b"3"}


def test_first_and_last_records_are_found(log_factory: LogFactory) -> None:
    log_factory.create()
    log = log_factory.open()
    append_all(log, METRICS, 0, [b"a", b"b", b"c"])
    first = first_records(log, METRICS, {0: 1, 1: 0})
    last = last_records(log, METRICS, [0, 1])
    assert (first[0] and first[0].value, first[1]) == (b"b", None)
    assert (last[0] and last[0].value, last[0] and last[0].offset, last[1]) == (b"c", 2, None)
    log_factory.topics().trim(METRICS, {0: 3})
    assert last_records(log, METRICS, [0]) == {0: None}


def test_start_of_each_shape_of_log(log_factory: LogFactory) -> None:
    log_factory.create(partitions=5, timestamp_type=CREATE_TIME)
    log = log_factory.open()
    far, near = NOW_MS - 3 * HOLD_MS, NOW_MS - HOLD_MS // 2
    for partition, times in enumerate(([], [near, NOW_MS], [far, near, NOW_MS], [far, near, NOW_MS], [far, near])):
        for ms in times:
            log.append_sync(METRICS, partition, b"x", timestamp_ms=ms)
    log_factory.topics().trim(METRICS, {3: 1, 4: 2})
    starts = find_start(log, METRICS, range(5), now_ms=NOW_MS, hold_ms=HOLD_MS, time_set=DEMO)
    horizon_ms = NOW_MS - HOLD_MS
    assert starts == {
        0: Start(StartCase.EMPTY, 0, horizon_ms + AHEAD_MS, True, horizon_ms),
        1: Start(StartCase.SHORTER, 0, horizon_ms + AHEAD_MS, True, horizon_ms),
        2: Start(StartCase.HIT, 1, horizon_ms + AHEAD_MS, False, horizon_ms),
        3: Start(StartCase.TRIMMED_SHORTER, 1, near + 2 * AHEAD_MS, False, horizon_ms),
        4: Start(StartCase.TRIMMED_ALL, 2, NOW_MS + AHEAD_MS, False, horizon_ms),
    }


def test_an_idle_log_keeps_its_last_hours(log_factory: LogFactory) -> None:
    log_factory.create(timestamp_type=CREATE_TIME)
    log = log_factory.open()
    last_ms = NOW_MS - 100 * HOLD_MS
    for ms in (last_ms - 2 * HOLD_MS, last_ms - HOLD_MS, last_ms):
        log.append_sync(METRICS, 0, b"x", timestamp_ms=ms)
    start = find_start(log, METRICS, [0], now_ms=NOW_MS, hold_ms=HOLD_MS, time_set=DEMO)[0]
    assert start == Start(StartCase.HIT, 1, last_ms - HOLD_MS + AHEAD_MS, False, last_ms - HOLD_MS)


def test_topics_do_not_share_offsets_or_times(log_factory: LogFactory) -> None:
    log_factory.create(timestamp_type=CREATE_TIME)
    log = log_factory.open()
    log.append_sync(METRICS, 0, b"x", timestamp_ms=NOW_MS)
    assert log.append_sync(SERIES, 0, b"x", key=b"k", timestamp_ms=5).offset == 0
    assert log.offsets_for_times(SERIES, {0: 6}) == {0: None}
