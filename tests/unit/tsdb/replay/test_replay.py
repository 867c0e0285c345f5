"""Replay over a log in memory: visible records, causes that stop a partition, and waits."""

from __future__ import annotations

import numpy as np
import pytest

from support.counters import sample
from support.data.detail_cases import histograms
from support.data.heads import SMALL_TIMES, canonical_of, id_of, new_head, refs_of, samples_of
from support.fakes.replay_log import ReplayLog, encoded, of_newer_version
from tsdb.codec.records.log_record import encode_record, encode_tick
from tsdb.codec.records.series_record import encode_announcement
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.log.interface import METRICS, SERIES
from tsdb.model.clock import ManualClock
from tsdb.model.details import SampleDetails, same_details
from tsdb.model.errors import LostOffsets, TsdbError, Unavailable, WrongTopic
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.resolution import derived_labels
from tsdb.model.window import EPOCH_MS
from tsdb.replay.replay import CLOCK_AHEAD_MAX_MS, FreshStart, PartitionProgress, Replay
from tsdb.replay.series_feed import SeriesFeed

NOW_MS = 1_000 * EPOCH_MS
POLL_S = 0.05


class Bench:
    """A replay of some partitions, from offset 0, stepped by hand."""

    def __init__(self, partitions: int = 1, limits: HeadLimits | None = None) -> None:
        self.log = ReplayLog(ManualClock(NOW_MS))
        self.heads = {p: new_head(limits=limits) for p in range(partitions)}
        self.renewed: list[int] = []
        self.renew_errors: list[TsdbError] = []
        self.feed = SeriesFeed(self.log.log, self.heads, dict.fromkeys(range(partitions), 0), oldest_ms=0)
        self.replay = Replay(
            self.log.log.reader({(METRICS, p): 0 for p in range(partitions)}),
            self.heads,
            {p: PartitionProgress(0) for p in range(partitions)},
            self.feed,
            clock=self.log.clock,
            renew=self._renew,
        )

    def _renew(self, partition: int) -> FreshStart[Head]:
        if self.renew_errors:
            raise self.renew_errors.pop(0)
        self.renewed.append(partition)
        start = self.log.low[METRICS, partition]
        return FreshStart(new_head(since_offset=start, from_start=False), PartitionProgress(start), 0)

    def progress(self, partition: int = 0) -> PartitionProgress:
        return self.replay.progress[partition]

    def head(self, partition: int = 0) -> Head:
        return self.heads[partition]

    def run(self, *, records_max: int = 100, steps_max: int = 50) -> None:
        """Step until two steps in a row apply nothing and nothing waits."""
        idle = 0
        for _ in range(steps_max):
            done = self.replay.step(POLL_S, records_max=records_max)
            idle = 0 if done.records or self.waiting() else idle + 1
            if idle == 2:
                return
        raise AssertionError(f"not at rest; waiting: {self.waiting()}")

    def step(self) -> None:
        self.replay.step(POLL_S, records_max=100)

    def waiting(self, partition: int = 0) -> str:
        waiting = self.replay.waiting_for(partition)
        return waiting.reason if waiting else ""

    def samples(self, *numbers: int, partition: int = 0) -> dict[int, dict[int, float]]:
        head = self.head(partition)
        refs = refs_of(head, numbers)
        return samples_of(head.gather_raw(refs, NOW_MS - 1000, NOW_MS + 1000), numbers)


@pytest.mark.parametrize("records_max", [1, 2, 3, 100])
def test_every_record_is_applied_once_in_order_however_it_is_fetched(records_max: int) -> None:
    bench = Bench()
    bench.log.announce(0, 1)
    for value in range(7):
        bench.log.put_samples((value % 2, NOW_MS, float(value)))
    bench.run(records_max=records_max)
    assert bench.samples(0, 1) == {0: {NOW_MS: 6.0}, 1: {NOW_MS: 5.0}}
    assert (bench.progress().records, bench.progress().samples) == (7, 7)
    assert (bench.progress().next_offset, bench.head().applied_offset) == (7, 6)
    assert bench.progress().applied_broker_ms == NOW_MS


def test_records_with_and_without_details_are_applied() -> None:
    bench = Bench()
    bench.log.announce(0, 1)
    columns = histograms([0], 1)
    details = SampleDetails(np.array([NOW_MS - 9]), columns, np.zeros(1, np.int64))
    one, length = np.array([7], np.uint64), np.array([1], np.uint32)
    ids, times = np.array([id_of(1)], np.uint64), np.array([NOW_MS])
    bench.log.put_samples((0, NOW_MS, 1.0))
    bench.log.put(encode_record(one, length, ids, times, columns.sums, details))
    bench.log.put_samples((0, NOW_MS + 1, 2.0))
    bench.run()
    assert not bench.progress().stopped
    assert bench.samples(0) == {0: {NOW_MS: 1.0, NOW_MS + 1: 2.0}}
    head = bench.head()
    assert same_details(head.gather_raw(refs_of(head, [1]), NOW_MS, NOW_MS + 1).details, details)


def test_offsets_of_no_record_at_the_end_count_as_read() -> None:
    bench = Bench()
    bench.log.put(encode_tick(), gap=3)
    bench.run()
    assert bench.log.high() == bench.progress().next_offset == 4
    assert bench.head().applied_offset == 0


def test_a_tick_moves_the_watermark() -> None:
    bench = Bench()
    bench.log.put(encode_tick(), broker_ms=NOW_MS + 5)
    bench.run()
    assert bench.head().state().watermark_ms == NOW_MS + 5


def test_nothing_is_read_from_the_log_before_series_was_read_to_its_end() -> None:
    bench = Bench()
    assert bench.waiting() == "series_behind"
    bench.log.announce(0)
    bench.log.put(encode_tick())
    bench.log.hidden.add(SERIES)
    bench.step()
    assert (bench.waiting(), bench.progress().next_offset) == ("series_behind", 0)
    bench.log.hidden.clear()
    bench.run()
    assert (bench.head().index.series, bench.progress().next_offset) == (1, 1)


def test_a_record_with_a_new_series_waits_until_series_is_read_past_it() -> None:
    bench = Bench()
    bench.run()
    bench.log.announce(0)
    bench.log.put_samples((0, NOW_MS, 1.0))
    bench.log.put_samples((0, NOW_MS + 1, 2.0))
    bench.log.hidden.add(SERIES)
    for _ in range(3):
        bench.step()
    assert (bench.waiting(), bench.head().applied_offset) == ("series_behind", None)
    bench.log.hidden.clear()
    bench.run()
    assert bench.samples(0) == {0: {NOW_MS: 1.0, NOW_MS + 1: 2.0}}
    assert bench.head().state().holes == ()
    assert bench.progress().records == 2


def test_a_series_without_announcement_becomes_a_hole_and_is_counted() -> None:
    bench = Bench()
    before = sample("tsdb_replay_ignored_samples_total", reason="unknown_series")
    bench.log.announce(0)
    bench.log.put_samples((0, NOW_MS, 1.0), (1, NOW_MS + 3, 2.0))
    bench.run()
    assert bench.samples(0) == {0: {NOW_MS: 1.0}}
    [hole] = bench.head().state().holes
    assert (hole.reason, hole.start_ms, hole.end_ms, hole.record_offset) == (
        "unknown_series",
        NOW_MS + 3,
        NOW_MS + 4,
        0,
    )
    assert sample("tsdb_replay_ignored_samples_total", reason="unknown_series") == before + 1


def test_a_corrupt_record_is_a_hole_and_the_next_is_applied() -> None:
    bench = Bench()
    before = sample("tsdb_replay_bad_records_total", reason="corrupt")
    bench.log.announce(0)
    good = encoded((0, NOW_MS, 1.0))
    bench.log.put(good[:-1] + bytes([good[-1] ^ 1]))
    bench.log.put_samples((0, NOW_MS + 1, 2.0))
    bench.run()
    assert bench.samples(0) == {0: {NOW_MS + 1: 2.0}}
    [hole] = bench.head().state().holes
    assert (hole.reason, hole.record_offset) == ("corrupt_record", 0)
    assert (hole.start_ms, hole.end_ms) == (
        NOW_MS - SMALL_TIMES.accept_past_ms,
        NOW_MS + SMALL_TIMES.ahead_ms + 1,
    )
    assert sample("tsdb_replay_bad_records_total", reason="corrupt") == before + 1


def test_a_sample_ahead_of_its_record_is_ignored_and_counted() -> None:
    bench = Bench()
    before = sample("tsdb_replay_ignored_samples_total", reason="ahead")
    bench.log.announce(0)
    limit = NOW_MS + SMALL_TIMES.ahead_ms
    bench.log.put_samples((0, limit, 1.0), (0, limit + 1, 2.0))
    bench.run()
    assert bench.samples(0) == {0: {limit: 1.0}}
    assert sample("tsdb_replay_ignored_samples_total", reason="ahead") == before + 1


def _put_trouble(bench: Bench, trouble: str) -> int:
    if trouble == "unknown_version":
        return bench.log.put(of_newer_version(encoded((0, NOW_MS + 1, 2.0))))
    return bench.log.put_samples((0, NOW_MS + 1, 2.0), broker_ms=NOW_MS + CLOCK_AHEAD_MAX_MS + 1)


@pytest.mark.parametrize("trouble", ["unknown_version", "broker_clock_ahead"])
def test_trouble_stops_its_partition_at_its_record_and_no_other(trouble: str) -> None:
    bench = Bench(partitions=2)
    before = sample("tsdb_replay_bad_records_total", reason=trouble)
    bench.log.announce(0)
    bench.log.announce(0, partition=1)
    bench.log.put_samples((0, NOW_MS, 1.0))
    offset = _put_trouble(bench, trouble)
    bench.log.put_samples((0, NOW_MS, 3.0))
    bench.log.put_samples((0, NOW_MS, 4.0), partition=1)
    bench.run()
    bench.log.put_samples((0, NOW_MS + 1, 5.0), partition=1)
    bench.run()
    stopped = bench.progress(0)
    assert stopped.stopped == trouble
    assert f"partition 0, record_offset {offset}" in stopped.stopped_message
    assert stopped.next_offset == offset
    assert bench.samples(0) == {0: {NOW_MS: 1.0}}
    assert bench.samples(0, partition=1) == {0: {NOW_MS: 4.0, NOW_MS + 1: 5.0}}
    assert bench.progress(1).stopped == ""
    assert sample("tsdb_replay_bad_records_total", reason=trouble) == before + 1


def test_a_first_record_that_cannot_be_read_stops_before_it() -> None:
    bench = Bench()
    bench.log.put(of_newer_version(encode_tick()))
    bench.run()
    assert (bench.progress().stopped, bench.progress().next_offset) == ("unknown_version", 0)
    assert bench.head().applied_offset is None


def test_a_broker_clock_just_within_its_limit_is_no_trouble() -> None:
    bench = Bench()
    bench.log.put(encode_tick(), broker_ms=NOW_MS + CLOCK_AHEAD_MAX_MS)
    bench.run()
    assert (bench.progress().stopped, bench.head().applied_offset) == ("", 0)


def _lost(partition: int, topic: str = METRICS, low: int = 0) -> LostOffsets:
    return LostOffsets("lost", reason="below_low_watermark", topic=topic, partition=partition, asked=0, low=low, high=9)


def test_lost_offsets_make_a_fresh_head_and_never_a_skip() -> None:
    bench = Bench(partitions=2)
    before = sample("tsdb_replay_lost_offsets_total")
    for partition in (0, 1):
        bench.log.announce(0, partition=partition)
        for step in range(3):
            bench.log.put_samples((0, NOW_MS + step, float(step)), partition=partition)
    bench.run(records_max=2)
    old = bench.head(0)
    bench.log.low[METRICS, 0] = 1
    bench.log.poll_errors[METRICS].append(_lost(0))
    bench.run()
    assert bench.renewed == [0]
    assert bench.head(0) is not old
    assert bench.head(0).state().since_offset == 1
    assert bench.samples(0) == {0: {NOW_MS + 1: 1.0, NOW_MS + 2: 2.0}}
    assert bench.samples(0, partition=1) == {0: {NOW_MS: 0.0, NOW_MS + 1: 1.0, NOW_MS + 2: 2.0}}
    assert sample("tsdb_replay_lost_offsets_total") == before + 1


def test_a_fresh_start_waits_for_a_log_that_does_not_answer() -> None:
    bench = Bench()
    bench.log.announce(0)
    bench.log.put_samples((0, NOW_MS, 1.0))
    bench.run()
    bench.log.poll_errors[METRICS].append(_lost(0))
    bench.renew_errors += [Unavailable("away", reason="log_unavailable")] * 2
    bench.step()
    bench.step()
    assert (bench.waiting(), bench.renewed) == ("log_unavailable", [])
    bench.run()
    assert bench.renewed == [0]
    assert bench.samples(0) == {0: {NOW_MS: 1.0}}


@pytest.mark.parametrize("topic", [METRICS, SERIES])
def test_a_topic_made_anew_stops_all_and_is_not_polled_in_a_hurry(topic: str) -> None:
    bench = Bench(partitions=2)
    bench.run()
    bench.log.poll_errors[topic].append(WrongTopic(f"topic {topic} is another now", reason="topic_recreated"))
    bench.step()
    for partition in (0, 1):
        assert bench.progress(partition).stopped == "topic_recreated"
        assert topic in bench.progress(partition).stopped_message
    polls, before = bench.log.polls, bench.log.clock.monotonic()
    bench.step()
    assert bench.log.polls == polls
    assert bench.log.clock.monotonic() == pytest.approx(before + POLL_S)


def test_memory_at_its_hard_limit_is_waited_for_and_nothing_is_lost_or_doubled() -> None:
    limits = HeadLimits()
    bench = Bench(limits=limits)
    object.__setattr__(limits, "memory_hard_bytes", 0)
    bench.log.announce(0)
    for step in range(3):
        bench.log.put_samples((0, NOW_MS + step, float(step)))
    for _ in range(4):
        bench.step()
    assert bench.waiting() == "memory_hard"
    applied = bench.progress().records
    object.__setattr__(limits, "memory_hard_bytes", 1 << 30)
    bench.run()
    assert applied < 3
    assert bench.progress().records == 3
    assert bench.samples(0) == {0: {NOW_MS: 0.0, NOW_MS + 1: 1.0, NOW_MS + 2: 2.0}}


def test_series_that_lost_offsets_is_read_again_and_the_record_waits_for_it() -> None:
    bench = Bench()
    before = sample("tsdb_replay_series_rereads_total")
    bench.log.announce(0)
    bench.run()
    bench.log.announce(1)
    bench.log.put_samples((0, NOW_MS, 1.0), (1, NOW_MS, 2.0))
    bench.log.poll_errors[SERIES].append(_lost(0, SERIES))
    bench.run()
    assert bench.samples(0, 1) == {0: {NOW_MS: 1.0}, 1: {NOW_MS: 2.0}}
    assert bench.head().state().holes == ()
    assert sample("tsdb_replay_series_rereads_total") == before + 1


def test_a_log_that_does_not_answer_questions_is_waited_for() -> None:
    bench = Bench()
    bench.log.announce(0)
    bench.log.put_samples((0, NOW_MS, 1.0))
    bench.log.ask_errors += [Unavailable("away", reason="timeout")] * 2
    bench.step()
    assert bench.waiting() == "timeout"
    bench.run()
    assert bench.samples(0) == {0: {NOW_MS: 1.0}}


def test_announcements_of_epochs_that_are_over_and_corrupt_ones_are_passed_over_and_counted() -> None:
    bench = Bench()
    ignored = "tsdb_replay_announcements_ignored_total"
    over, corrupt = sample(ignored, reason="epoch_over"), sample(ignored, reason="corrupt")
    bench.log.announce(0)
    bench.log.announce(1, epoch=-1_000)
    bench.log.announce_bytes(b"key", b"nonsense")
    bench.run()
    assert bench.head().index.refs_of(np.array([id_of(0), id_of(1)], np.uint64)).size == 1
    assert sample(ignored, reason="epoch_over") == over + 1
    assert sample(ignored, reason="corrupt") == corrupt + 1


def test_announcements_of_derived_series_are_passed_over_and_counted() -> None:
    bench = Bench()
    ignored = "tsdb_replay_announcements_ignored_total"
    before = sample(ignored, reason="derived")
    bench.log.announce(0)
    derived = derived_labels(canonical_of(0), "5m", "sum")
    epoch = bench.log.clock.now_ms() // EPOCH_MS
    bench.log.announce_bytes(*encode_announcement(series_id(derived), epoch, 7, derived))
    bench.run()
    assert bench.head().index.series == 1
    assert sample(ignored, reason="derived") == before + 1


def test_close_releases_both_readers() -> None:
    bench = Bench()
    bench.replay.close()
    assert bench.replay._source.closed  # type: ignore[attr-defined]  # of ReplayReader
    assert bench.feed._reader.closed  # type: ignore[attr-defined]


LONG = "x" * 2000


def announce_long(bench: Bench, count: int, partition: int = 0, *, instance: str = "attack") -> None:
    """Series with 2 KB of labels, none like another."""
    for number in range(count):
        labels = canonical_labels({"__name__": "long", "instance": instance, "n": f"{number}{LONG}"})
        key, value = encode_announcement(series_id(labels), NOW_MS // EPOCH_MS, 7, labels)
        bench.log.announce_bytes(key, value, partition)


def test_labels_of_any_number_of_series_stay_within_half_of_the_hard_limit() -> None:
    limit = 4 << 20
    bench = Bench(limits=HeadLimits(memory_hard_bytes=limit))
    announce_long(bench, 3_000)
    for _ in range(20):
        bench.replay.step(POLL_S, records_max=100)
    held = bench.head().sizes().bytes
    assert bench.head().index.series > 300
    assert held < limit, f"{held} bytes of a limit of {limit}"


def test_a_partition_whose_labels_do_not_fit_waits_alone_and_the_others_are_applied() -> None:
    bench = Bench(partitions=2, limits=HeadLimits(memory_hard_bytes=4 << 20))
    announce_long(bench, 3_000, partition=0)
    bench.log.announce(0, partition=0)
    bench.log.announce(1, partition=1)
    bench.log.put_samples((0, NOW_MS, 1.0), partition=0)
    bench.log.put_samples((1, NOW_MS, 2.0), partition=1)
    for _ in range(30):
        bench.step()
    assert bench.waiting(0) == "memory_hard"
    assert bench.waiting(1) == ""
    assert bench.samples(1, partition=1) == {1: {NOW_MS: 2.0}}
    assert bench.head(0).state().holes == (), "what waits for memory is no loss"
    assert bench.progress(0).next_offset == 0


def test_known_series_of_a_partition_without_room_for_labels_go_on() -> None:
    bench = Bench(limits=HeadLimits(memory_hard_bytes=4 << 20))
    bench.log.announce(0)
    announce_long(bench, 3_000)
    for step in range(3):
        bench.log.put_samples((0, NOW_MS + step, float(step)))
    for _ in range(30):
        bench.step()
    assert bench.waiting() == ""
    assert bench.samples(0) == {0: {NOW_MS: 0.0, NOW_MS + 1: 1.0, NOW_MS + 2: 2.0}}


def test_a_partition_that_waited_for_memory_goes_on_with_all_it_missed_when_there_is_room() -> None:
    limits = HeadLimits(memory_hard_bytes=4 << 20)
    bench = Bench(partitions=2, limits=limits)
    announce_long(bench, 3_000)
    bench.log.announce(0, partition=0)
    bench.log.announce(1, partition=1)
    for step in range(40):
        bench.log.put_samples((0, NOW_MS - step, float(step)), partition=0)
        bench.log.put_samples((1, NOW_MS - step, float(step)), partition=1)
    for _ in range(30):
        bench.replay.step(POLL_S, records_max=3)
    assert bench.waiting(0) == "memory_hard"
    object.__setattr__(limits, "memory_hard_bytes", 1 << 30)
    bench.run(records_max=3, steps_max=200)
    everything = {NOW_MS - step: float(step) for step in range(40)}
    assert bench.samples(0, partition=0) == {0: everything}
    assert bench.samples(1, partition=1) == {1: everything}
    assert bench.head(0).index.series == 3_001
    assert bench.head(0).state().holes == ()


def test_a_full_partition_lets_the_others_apply_and_applies_in_order_later() -> None:
    small, large = HeadLimits(memory_hard_bytes=1 << 30), HeadLimits()
    bench = Bench(partitions=2, limits=large)
    bench.heads[0] = bench.replay._heads[0] = bench.feed._heads[0] = new_head(limits=small)
    for partition in range(2):
        bench.log.announce(partition, partition=partition)
    bench.run()
    object.__setattr__(small, "memory_hard_bytes", 1)
    for step in range(40):
        for partition in range(2):
            bench.log.put_samples((partition, NOW_MS - step, float(step)), partition=partition)
    for _ in range(30):
        bench.replay.step(POLL_S, records_max=7)
    assert (bench.waiting(0), bench.waiting(1)) == ("memory_hard", "")
    assert bench.progress(1).next_offset == 40
    object.__setattr__(small, "memory_hard_bytes", 1 << 30)
    bench.run(records_max=7)
    assert bench.samples(0, partition=0) == {0: {NOW_MS - step: float(step) for step in range(40)}}
    assert bench.progress(0).records == 40
