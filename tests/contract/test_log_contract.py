"""The contract of Log and LogReader, on the embedded log and on a real broker alike."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from support.data.heads import Record, details_of, encoded
from support.servers.logs import (
    WITHIN_S,
    LogFactory,
    append_all,
    poll_until,
    read_to_end,
    read_values,
    records_of,
    wait_until,
)
from tsdb.codec.records.log_record import decode_records
from tsdb.log.interface import META, METRICS, SERIES, Appended, EndOfLog, Event, Log, RecordBatch, Watermarks
from tsdb.log.settings import LogSettings
from tsdb.log.topics import CREATE_TIME
from tsdb.model.details import same_details
from tsdb.model.errors import InvalidRequest, LostOffsets, TsdbError, Unavailable, WrongTopic

NOW_MS = 1_700_000_000_000


@pytest.fixture
def log(log_factory: LogFactory) -> Log:
    log_factory.create(partitions=2)
    return log_factory.open()


def test_acknowledged_appends_are_read_back_in_order(log: Log) -> None:
    acks = [log.append_sync(METRICS, 1, b"value %d" % i) for i in range(20)]
    assert [ack.offset for ack in acks] == sorted({ack.offset for ack in acks})
    with log.reader({(METRICS, 1): 0}) as reader:
        records = records_of(read_to_end(reader))
    assert [record.value for record in records] == [b"value %d" % i for i in range(20)]
    assert [(record.offset, record.broker_ms) for record in records] == [(ack.offset, ack.broker_ms) for ack in acks]


def test_records_with_histograms_and_start_timestamps_are_read_back_as_they_were(log: Log) -> None:
    numbers = tuple(range(12))
    samples = tuple((number % 3, 100 + number, float(number)) for number in numbers)
    value = encoded(Record(0, 0, samples, details=numbers))
    log.append_sync(METRICS, 1, value)
    with log.reader({(METRICS, 1): 0}) as reader:
        (record,) = records_of(read_to_end(reader))
    assert record.value == value
    found = decode_records(record.value, np.array([0, len(value)], np.int64))
    assert same_details(found.details, details_of(numbers, np.arange(12.0)))


def test_a_reader_that_lingers_reads_the_same_and_comes_to_the_end(log: Log) -> None:
    for number in range(20):
        log.append_sync(METRICS, number % 2, b"value %d" % number)
    with log.reader({(METRICS, 0): 0, (METRICS, 1): 3}, linger_s=0.2) as reader:
        events = read_to_end(reader, partitions=2)
        log.append_sync(METRICS, 1, b"later")
        events += poll_until(reader, lambda got: bool(records_of(got)))
    want = {b"value %d" % number for number in range(20) if not number % 2 or number >= 7} | {b"later"}
    values = [record.value for record in records_of(events)]
    assert len(values) == len(want)
    assert set(values) == want


def test_readers_one_after_another_over_a_kept_connection_each_read_from_their_start(log_factory: LogFactory) -> None:
    log_factory.create(partitions=2)
    log = log_factory.open(LogSettings(idle_readers_max=1))
    for partition in (0, 1):
        append_all(log, METRICS, partition, [b"%d of %d" % (number, partition) for number in range(50)])
    append_all(log, SERIES, 0, [b"series"])
    for partition, start in ((0, 0), (1, 30), (1, 10), (0, 49), (0, 20)):
        with log.reader({(METRICS, partition): start}) as reader:
            # The rest was fetched too; it is not left to the next reader.
            values = [each.value for each in records_of(poll_until(reader, lambda got: bool(records_of(got))))]
        assert values[0] == b"%d of %d" % (start, partition)
        assert set(values) <= {b"%d of %d" % (number, partition) for number in range(start, 50)}
    with log.reader({(METRICS, 0): 51}) as reader, pytest.raises(LostOffsets):
        poll_until(reader, lambda _: False)
    with log.reader({(SERIES, 0): 0}) as reader:
        assert [record.value for record in records_of(read_to_end(reader))] == [b"series"]
    with log.reader({(METRICS, 0): 40}) as one, log.reader({(METRICS, 1): 45}) as other:
        assert len(records_of(read_to_end(one))) == 10
        assert len(records_of(read_to_end(other))) == 5


def test_broker_time_is_the_time_of_the_append(log: Log) -> None:
    before_ms = time.time_ns() // 1_000_000
    ack = log.append_sync(METRICS, 0, b"x", timestamp_ms=1)
    after_ms = time.time_ns() // 1_000_000
    assert before_ms <= ack.broker_ms <= after_ms


def test_keys_headers_and_null_records_survive(log: Log) -> None:
    log.append_sync(SERIES, 0, b"v", key=b"k\xff\x00", headers=[("name", b"\x00\xff"), ("name", b"twice")])
    log.append_sync(SERIES, 0, None, key=b"k2")
    log.append_sync(SERIES, 0, b"", key=b"")
    with log.reader({(SERIES, 0): 0}) as reader:
        first, second, third = records_of(read_to_end(reader))
    assert (first.key, first.value) == (b"k\xff\x00", b"v")
    assert list(first.headers) == [("name", b"\x00\xff"), ("name", b"twice")]
    assert (second.key, second.value, list(second.headers)) == (b"k2", None, [])
    assert (third.key, third.value) == (b"", b"")


def test_records_without_nulls_or_headers_carry_no_arrays_for_them(log: Log) -> None:
    log.append_sync(SERIES, 0, b"v", key=b"k")
    with log.reader({(SERIES, 0): 0}) as reader:
        (batch,) = [event for event in read_to_end(reader) if isinstance(event, RecordBatch)]
    assert batch.null_values is None
    assert batch.headers is None


def test_keys_of_the_log_itself_are_not_read(log: Log) -> None:
    append_all(log, METRICS, 0, [b"a", b"bc"])
    with log.reader({(METRICS, 0): 0}) as reader:
        batches = [event for event in read_to_end(reader) if isinstance(event, RecordBatch)]
    assert all(batch.keys == b"" and not batch.key_starts.any() for batch in batches)


def test_the_end_is_told_once_and_again_after_more(log: Log) -> None:
    with log.reader({(METRICS, 0): 0}) as reader:
        assert read_to_end(reader) == [EndOfLog(METRICS, 0, 0)]
        assert reader.poll(0.3) == []
        log.append_sync(METRICS, 0, b"x")
        events = read_to_end(reader)
        assert len(records_of(events)) == 1
        assert events[-1] == EndOfLog(METRICS, 0, 1)


def test_poll_returns_what_is_there_without_waiting_for_more(log: Log) -> None:
    with log.reader({(METRICS, 0): 0}) as reader:
        read_to_end(reader)
        log.append_sync(METRICS, 0, b"x")
        started = time.monotonic()
        assert len(records_of(reader.poll(20.0, max_records=1000))) == 1
        assert time.monotonic() - started < 10.0


def test_a_poll_that_waits_ends_with_a_record_with_a_wake_and_at_its_timeout(log: Log) -> None:
    with log.reader({(METRICS, 0): 0, (METRICS, 1): 0}) as reader:
        poll_until(reader, lambda events: len([event for event in events if isinstance(event, EndOfLog)]) == 2)
        for act in (reader.wake, lambda: append_all(log, METRICS, 1, [b"x"])):
            other = threading.Timer(0.3, act)
            began = time.monotonic()
            other.start()
            reader.poll(WITHIN_S)
            other.join()
            assert 0.3 <= time.monotonic() - began < WITHIN_S / 2
        reader.wake()  # A wake before the poll ends that poll.
        reader.poll(WITHIN_S)
        assert time.monotonic() - began < WITHIN_S


def test_the_records_of_another_process_end_a_poll_too(log_factory: LogFactory, log: Log) -> None:
    with log.reader({(METRICS, 0): 0, (METRICS, 1): 0}) as reader:
        poll_until(reader, lambda events: len([event for event in events if isinstance(event, EndOfLog)]) == 2)
        other = threading.Timer(0.3, lambda: append_all(log_factory.open(), METRICS, 0, [b"theirs"]))
        other.start()
        began = time.monotonic()
        assert [record.value for record in records_of(reader.poll(WITHIN_S))] == [b"theirs"]
        assert time.monotonic() - began < WITHIN_S / 2
        other.join()


def test_poll_returns_no_more_records_than_asked(log: Log) -> None:
    append_all(log, METRICS, 0, [b"%d" % i for i in range(100)])
    with log.reader({(METRICS, 0): 0}) as reader:
        values: list[bytes | None] = []
        while len(values) < 100:
            records = records_of(reader.poll(1.0, max_records=7))
            assert len(records) <= 7
            values += [record.value for record in records]
    assert values == [b"%d" % i for i in range(100)]


def test_large_records_are_read_in_bounded_polls(log: Log) -> None:
    value = bytes(500_000)
    append_all(log, METRICS, 0, [value] * 12)
    with log.reader({(METRICS, 0): 0}) as reader:
        read = reader.poll(5.0, max_records=1)
        read += reader.poll(5.0, max_bytes=1_000_000)
        assert len(records_of(read)) <= 4
        read += poll_until(reader, lambda events: len(records_of(events)) + len(records_of(read)) >= 12)
    assert [record.value for record in records_of(read)] == [value] * 12


def test_a_reader_starts_anywhere_and_seeks_both_ways(log: Log) -> None:
    append_all(log, METRICS, 0, [b"%d" % i for i in range(10)])
    with log.reader({(METRICS, 0): 6}) as reader:
        assert read_values(reader, 4) == [b"6", b"7", b"8", b"9"]
        reader.seek(METRICS, 0, 2)
        assert read_values(reader, 8) == [b"%d" % i for i in range(2, 10)]
        reader.seek(METRICS, 0, 9)
        assert read_values(reader, 1) == [b"9"]
        reader.seek(METRICS, 0, 10)
        assert [event for event in read_to_end(reader) if isinstance(event, RecordBatch)] == []


def test_a_partition_that_rests_is_not_read_until_it_is_sought_and_the_others_go_on(log: Log) -> None:
    for partition in range(2):
        append_all(log, METRICS, partition, [b"%d" % i for i in range(3)])
    with log.reader({(METRICS, 0): 0, (METRICS, 1): 0}) as reader:
        reader.pause(METRICS, 0)
        events: list[Event] = []
        poll_until(reader, lambda events: len(records_of(events)) >= 3, into=events)
        assert {event.partition for event in [*events, *reader.poll(0.2)]} == {1}
        reader.seek(METRICS, 0, 1)
        append_all(log, METRICS, 1, [b"3"])
        poll_until(reader, lambda events: len(records_of(events)) >= 6, into=events)
    assert [record.value for record in records_of(events, partition=0)] == [b"1", b"2"]
    assert [record.value for record in records_of(events, partition=1)] == [b"0", b"1", b"2", b"3"]


def test_a_reader_of_many_partitions_keeps_each_in_order(log: Log) -> None:
    for partition in (0, 1):
        append_all(log, METRICS, partition, [b"m%d-%d" % (partition, i) for i in range(50)])
        for i in range(5):
            log.append_sync(SERIES, partition, b"s%d-%d" % (partition, i), key=b"k%d" % i)
    starts = {(topic, partition): 0 for topic in (METRICS, SERIES) for partition in (0, 1)}
    with log.reader(starts) as reader:
        events = poll_until(reader, lambda events: len(records_of(events)) >= 110)
    for partition in (0, 1):
        metrics, series = records_of(events, METRICS, partition), records_of(events, SERIES, partition)
        assert [record.value for record in metrics] == [b"m%d-%d" % (partition, i) for i in range(50)]
        assert [record.value for record in series] == [b"s%d-%d" % (partition, i) for i in range(5)]


def test_concurrent_appenders_each_keep_their_order(log: Log) -> None:
    answers: list[Appended | TsdbError] = []

    def send(writer: int) -> None:
        for i in range(200):
            log.append(METRICS, 0, b"%d:%d" % (writer, i), on_done=answers.append)

    threads = [threading.Thread(target=send, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush(WITHIN_S)
    assert sum(isinstance(answer, Appended) for answer in answers) == 1600
    with log.reader({(METRICS, 0): 0}) as reader:
        values = [(record.value or b"").split(b":") for record in records_of(read_to_end(reader))]
    for writer in range(8):
        assert [int(i) for w, i in values if int(w) == writer] == list(range(200))


def test_arrays_have_the_promised_types(log: Log) -> None:
    append_all(log, SERIES, 0, [b"a", b"bb"])
    with log.reader({(SERIES, 0): 0}) as reader:
        batch = next(event for event in read_to_end(reader) if isinstance(event, RecordBatch))
    for array in (batch.value_starts, batch.key_starts, batch.offsets, batch.broker_ms):
        assert array.dtype == np.int64
    assert len(batch.value_starts) == len(batch.key_starts) == len(batch.offsets) + 1
    assert batch.value_starts[-1] == len(batch.values)


def test_watermarks_are_fresh_and_follow_a_trim(log_factory: LogFactory, log: Log) -> None:
    assert log.watermarks(METRICS, [0, 1]) == {0: Watermarks(0, 0), 1: Watermarks(0, 0)}
    for i in range(10):
        log.append_sync(METRICS, 1, b"%d" % i)
        assert log.watermarks(METRICS, [1])[1].high == i + 1
    log_factory.topics().trim(METRICS, {1: 4})
    assert log.watermarks(METRICS, [0, 1]) == {0: Watermarks(0, 0), 1: Watermarks(4, 10)}
    log_factory.topics().trim(METRICS, {1: 10})
    assert log.watermarks(METRICS, [1]) == {1: Watermarks(10, 10)}


def test_high_watermarks_alone_are_those_of_the_watermarks(log: Log) -> None:
    append_all(log, METRICS, 0, [b"a", b"b"])
    assert log.high_watermarks(METRICS, [0, 1]) == {0: 2, 1: 0}


@pytest.mark.parametrize(
    ("asked_ms", "want"),
    [
        (-5, 0),
        (0, 0),
        (NOW_MS, 0),
        (NOW_MS + 1, 1),
        (NOW_MS + 10, 1),
        (NOW_MS + 11, 3),  # Offset 2 stepped back.
        (NOW_MS + 20, 3),
        (NOW_MS + 21, None),
    ],
)
def test_time_lookup_finds_the_first_record_at_or_after(
    log_factory: LogFactory, asked_ms: int, want: int | None
) -> None:
    log_factory.create(timestamp_type=CREATE_TIME)
    log = log_factory.open()
    for step in (0, 10, 5, 20, 15):
        log.append_sync(METRICS, 0, b"x", timestamp_ms=NOW_MS + step)
    assert log.offsets_for_times(METRICS, {0: asked_ms, 1: asked_ms}) == {0: want, 1: None}


def test_time_lookup_counts_only_what_is_retained(log_factory: LogFactory) -> None:
    log_factory.create(timestamp_type=CREATE_TIME)
    log = log_factory.open()
    for step in (0, 100, 50, 60, 200):
        log.append_sync(METRICS, 0, b"x", timestamp_ms=NOW_MS + step)
    log_factory.topics().trim(METRICS, {0: 2})
    found = {step: log.offsets_for_times(METRICS, {0: NOW_MS + step})[0] for step in (0, 50, 60, 61, 200, 201)}
    assert found == {0: 2, 50: 2, 60: 3, 61: 4, 200: 4, 201: None}


def test_a_start_below_the_log_is_lost_offsets_and_leaves_others_alone(log_factory: LogFactory, log: Log) -> None:
    append_all(log, METRICS, 0, [b"%d" % i for i in range(10)])
    append_all(log, METRICS, 1, [b"other"])
    log_factory.topics().trim(METRICS, {0: 5})
    events: list[Event] = []
    with log.reader({(METRICS, 0): 2, (METRICS, 1): 0}) as reader:
        with pytest.raises(LostOffsets) as lost:
            poll_until(reader, lambda events: False, into=events)
        assert lost.value.reason == "below_low_watermark"
        wanted = {"topic": METRICS, "partition": "0", "asked": "2", "low": "5", "high": "10"}
        assert lost.value.metadata == wanted
        reader.seek(METRICS, 0, 5)
        poll_until(reader, lambda events: len(records_of(events)) >= 6, into=events)
    assert [record.value for record in records_of(events, partition=0)] == [b"%d" % i for i in range(5, 10)]
    assert [record.value for record in records_of(events, partition=1)] == [b"other"]


def test_a_start_above_the_end_is_lost_offsets_and_never_a_wait(log: Log) -> None:
    append_all(log, METRICS, 0, [b"0", b"1"])
    with log.reader({(METRICS, 0): 7}) as reader:
        with pytest.raises(LostOffsets) as lost:
            poll_until(reader, lambda events: False)
        assert lost.value.reason == "offset_above_end"
        reader.seek(METRICS, 0, 1)
        assert read_values(reader, 1) == [b"1"]


def test_a_log_trimmed_below_a_resting_reader_is_lost_offsets(log_factory: LogFactory, log: Log) -> None:
    with log.reader({(METRICS, 0): 0}) as reader:
        read_to_end(reader)
        reader.seek(METRICS, 0, 0)
        append_all(log, METRICS, 0, [b"x"] * 6)
        log_factory.topics().trim(METRICS, {0: 6})
        reader.seek(METRICS, 0, 3)
        with pytest.raises(LostOffsets) as lost:
            poll_until(reader, lambda events: False)
        assert lost.value.metadata["low"] == "6"


def test_a_recreated_topic_is_an_error_and_none_of_its_records_are_read(log_factory: LogFactory, log: Log) -> None:
    admin = log_factory.topics()
    with log_factory.open() as old:
        append_all(old, METRICS, 0, [b"old"] * 3)
    old_id = log.topic_id(METRICS)
    with log.reader({(METRICS, 0): 0}) as reader:
        assert read_values(reader, 3) == [b"old"] * 3
        log_factory.recreate(admin, METRICS)
        with log_factory.open() as fresh:
            append_all(fresh, METRICS, 0, [b"new"] * 10)  # Offset 3, where the reader is, exists again.
            assert fresh.topic_id(METRICS) != old_id
        with pytest.raises(WrongTopic) as wrong:
            poll_until(reader, lambda events: bool(records_of(events)))
        assert wrong.value.reason == "topic_recreated"
        with pytest.raises(WrongTopic):
            reader.poll(0.1)


def test_a_recreated_topic_ends_appends_and_questions(log_factory: LogFactory, log: Log) -> None:
    log.append_sync(METRICS, 0, b"old")
    log_factory.recreate(log_factory.topics(), METRICS)

    def append_fails() -> bool:
        try:
            log.append_sync(METRICS, 0, b"lost between two topics")
        except WrongTopic as error:
            return error.reason == "topic_recreated"
        except Unavailable:
            pass  # Kafka's producer may time out on the way.
        return False

    wait_until(append_fails)
    with pytest.raises(WrongTopic):
        log.watermarks(METRICS, [0])
    with pytest.raises(WrongTopic):
        log.offsets_for_times(METRICS, {0: 0})


def test_a_deleted_topic_is_an_error(log_factory: LogFactory, log: Log) -> None:
    append_all(log, METRICS, 0, [b"x"])
    with log.reader({(METRICS, 0): 0}) as reader:
        read_to_end(reader)
        log_factory.topics().delete(METRICS)
        with pytest.raises(WrongTopic) as wrong:
            poll_until(reader, lambda events: False)
    assert wrong.value.reason == "topic_deleted"


def test_unknown_topics_and_partitions_are_named(log: Log) -> None:
    for ask in (log.topic_id, log.partitions, lambda topic: log.watermarks(topic, [0])):
        with pytest.raises(WrongTopic) as wrong:
            ask("nothing")
        assert (wrong.value.reason, "nothing" in wrong.value.message) == ("unknown_topic", True)
    for partition in (-1, 2):
        for act in (
            lambda p: log.append_sync(METRICS, p, b"x"),
            lambda p: log.watermarks(METRICS, [p]),
            lambda p: log.offsets_for_times(METRICS, {p: 0}),
            lambda p: log.reader({(METRICS, p): 0}),
        ):
            with pytest.raises(InvalidRequest) as invalid:
                act(partition)
            assert invalid.value.reason == "unknown_partition"
            assert f"partitions 0 to 1; got {partition}" in invalid.value.message


def test_topic_id_outlives_the_connection(log_factory: LogFactory, log: Log) -> None:
    assert log_factory.open().topic_id(METRICS) == log.topic_id(METRICS)
    assert log.topic_id(SERIES) != log.topic_id(METRICS)
    assert (log.partitions(METRICS), log.partitions(META)) == (2, 1)


def test_a_record_too_large_is_refused_by_name_and_others_go_on(log: Log) -> None:
    with pytest.raises(InvalidRequest) as invalid:
        log.append_sync(METRICS, 0, bytes(3 * 1024 * 1024))
    assert invalid.value.reason == "record_too_large"
    assert "topic" in invalid.value.message
    assert log.append_sync(METRICS, 0, b"small").offset == 0


def test_a_compacted_topic_takes_no_record_without_a_key(log: Log) -> None:
    with pytest.raises(InvalidRequest) as invalid:
        log.append_sync(SERIES, 0, b"x")
    assert invalid.value.reason == "invalid_record"
    assert log.append_sync(SERIES, 0, b"x", key=b"k").offset == 0


def test_records_survive_a_new_connection(log_factory: LogFactory, log: Log) -> None:
    append_all(log, METRICS, 0, [b"a", b"b"])
    log.close()
    again = log_factory.open()
    assert again.append_sync(METRICS, 0, b"c").offset == 2
    with again.reader({(METRICS, 0): 0}) as reader:
        assert read_values(reader, 3) == [b"a", b"b", b"c"]


def test_close_answers_everything_and_ends_appends(log: Log) -> None:
    answers: list[Appended | TsdbError] = []
    for _ in range(500):
        log.append(METRICS, 0, b"x" * 100, on_done=answers.append)
    log.close()
    assert len(answers) == 500
    with pytest.raises(Unavailable) as closed:
        log.append(METRICS, 0, b"x", on_done=answers.append)
    assert closed.value.reason == "log_closed"
    log.close()


def test_an_available_log_says_so(log: Log) -> None:
    with log.reader({(METRICS, 0): 0}) as reader:
        read_to_end(reader)
        assert reader.unavailable_since_monotonic is None
