"""Announcements are acknowledged on the topic `series` before the first sample. They are renewed in time, and renewals
are spread and delay no write.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ingest.series.announcements import Acks, AgeClock, Answer
from support.counters import sample
from support.fakes.fake_log import Fault
from support.servers.gateways import NOW_MS, Bench, label_set
from tsdb.log.interface import METRICS, SERIES, Appended
from tsdb.model.clock import ManualClock
from tsdb.model.errors import ConfigMismatch, Overloaded, Unavailable
from tsdb.model.labels import series_id
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import DEMO, PRODUCTION, TimeSet
from tsdb.model.window import EPOCH_MS, index_epoch, index_epoch_end_ms, index_epoch_start_ms

WINDOW_MS = PRODUCTION.window_ms


def announced(bench: Bench) -> list[bytes]:
    """Labels announced since the last call."""
    found = [announcement.canonical for announcement in bench.log.announcements()]
    bench.log.records = [record for record in bench.log.records if record.topic != SERIES]
    return found


def test_a_new_series_is_announced_before_its_sample_in_the_partition_of_its_log() -> None:
    bench = Bench()
    labels = [label_set(number, instance=number % 8) for number in range(40)]
    bench.write(labels)
    series, metrics = bench.log.of(SERIES), bench.log.of(METRICS)
    assert max(record.order for record in series) < min(record.order for record in metrics)
    announcements = bench.log.announcements()
    assert {a.canonical for a in announcements} == set(labels)
    homes = {int(i): record.partition for record in metrics for i in bench.log.decoded(record.partition).series_id}
    for record, announcement in zip(series, announcements, strict=True):
        assert announcement.series_id == series_id(announcement.canonical)
        assert announcement.pack_id == PlacementRule().place(announcement.canonical).pack_id
        assert announcement.epoch == index_epoch(announcement.series_id, NOW_MS)
        assert record.partition == homes[announcement.series_id]


def test_the_sample_waits_for_the_acknowledgement_of_its_announcement() -> None:
    bench = Bench()
    bench.log.hold(SERIES)
    done = threading.Thread(target=bench.write, args=([label_set(0)],))
    done.start()
    while not bench.log.waiting:
        assert done.is_alive()
    assert bench.log.of(METRICS) == []
    bench.log.release()
    done.join(60.0)
    assert not done.is_alive()
    assert len(bench.log.of(METRICS)) == 1


@pytest.mark.parametrize("raised", [True, False])
def test_an_announcement_that_fails_fails_the_write_and_is_made_again(raised: bool) -> None:
    bench = Bench()
    before = sample("tsdb_ingest_announcement_failures_total", kind="new")
    bench.log.plan = lambda topic, partition, value: (
        Fault(Overloaded("full", reason="queue_full"), raised=raised) if topic == SERIES else None
    )
    with pytest.raises(Overloaded):
        bench.write([label_set(0)])
    assert bench.log.of(METRICS) == []
    assert sample("tsdb_ingest_announcement_failures_total", kind="new") == before + 1
    bench.log.plan = lambda topic, partition, value: None
    bench.write([label_set(0)])
    assert announced(bench) == [label_set(0)]


def test_a_lost_ack_of_an_announcement_makes_it_again() -> None:
    bench = Bench()
    bench.log.plan = lambda topic, partition, value: Fault(Unavailable("lost"), stored=True)
    with pytest.raises(Unavailable):
        bench.write([label_set(0)])
    bench.log.plan = lambda topic, partition, value: None
    bench.write([label_set(0)])
    assert len(bench.log.announcements()) == 2


def test_what_was_acknowledged_of_a_failed_round_is_not_announced_again() -> None:
    bench = Bench()
    bad = label_set(1)
    bench.log.plan = lambda topic, partition, value: Fault(Unavailable("away")) if bad in value else None
    with pytest.raises(Unavailable):
        bench.write([label_set(0), bad])
    bench.log.plan = lambda topic, partition, value: None
    assert announced(bench) == [label_set(0)]
    bench.write([label_set(0), bad])
    assert announced(bench) == [bad]


def test_an_announcement_answered_after_the_deadline_still_counts() -> None:
    bench = Bench()
    bench.log.hold(SERIES)
    with pytest.raises(Unavailable, match="1 new series were not announced"):
        bench.write([label_set(0)], timeout_s=0.01)
    bench.log.release()
    assert announced(bench) == [label_set(0)]
    bench.write([label_set(0)])
    assert announced(bench) == []


def test_a_known_series_costs_no_announcement() -> None:
    bench = Bench()
    labels = [label_set(number) for number in range(100)]
    bench.write(labels)
    announced(bench)
    bench.clock.advance(WINDOW_MS // 2 - 1)
    bench.write(labels)
    assert announced(bench) == []


def test_renewals_are_spread_over_the_second_half_of_the_window() -> None:
    bench = Bench()
    labels = [label_set(number) for number in range(1600)]
    bench.write(labels)
    announced(bench)
    bench.clock.advance(WINDOW_MS // 2)
    counts, pairs = [], []
    for _ in range(16):
        bench.clock.advance(WINDOW_MS // 32)
        bench.write(labels)
        pairs += [(a.series_id, a.epoch) for a in bench.log.announcements()]
        counts.append(len(announced(bench)))
    assert len(set(pairs)) == len(pairs), "each (series, index epoch) once in the second half"
    assert {ident for ident, _ in pairs} == {series_id(one) for one in labels}
    assert max(counts) < 3 * len(labels) // 16, "no instant brings a burst"
    assert min(counts) > len(labels) // 48


def test_a_renewal_does_not_make_the_write_wait() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    bench.clock.advance(WINDOW_MS - 1)
    bench.log.hold(SERIES)
    assert bench.write([label_set(0)]).samples == 1
    assert bench.log.waiting == 1
    assert bench.write([label_set(0)]).samples == 1
    assert bench.log.waiting == 1, "one that is under way is not sent twice"
    bench.log.release()
    bench.clock.advance(WINDOW_MS // 2 - 1)
    announced(bench)
    bench.write([label_set(0)])
    assert announced(bench) == []


def test_a_renewal_that_fails_fails_no_write_and_is_tried_again_before_it_lapses() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    announced(bench)
    before = sample("tsdb_ingest_announcement_failures_total", kind="renewal")
    bench.clock.advance(WINDOW_MS // 2)
    bench.log.plan = lambda topic, partition, value: Fault(Unavailable("away")) if topic == SERIES else None
    for _ in range(31):
        bench.clock.advance(WINDOW_MS // 64)
        bench.write([label_set(0)])
    tries = int(sample("tsdb_ingest_announcement_failures_total", kind="renewal") - before)
    assert tries >= 1
    assert announced(bench) == []


def test_a_renewal_that_the_queue_refuses_fails_no_write() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    bench.clock.advance(WINDOW_MS - 1)
    bench.log.plan = lambda topic, partition, value: (
        Fault(Overloaded("full", reason="queue_full"), raised=True) if topic == SERIES else None
    )
    assert bench.write([label_set(0)]).samples == 1


@pytest.mark.parametrize("time_set", [PRODUCTION, DEMO])
@pytest.mark.parametrize("early_ms", [0, 1])
def test_a_write_waits_for_an_announcement_of_what_was_quiet_for_a_window(time_set: TimeSet, early_ms: int) -> None:
    bench = Bench(time_set=time_set)
    bench.write([label_set(0)])
    bench.clock.advance(time_set.window_ms - early_ms)
    assert waits_for_announcement(bench) == (early_ms == 0)


@pytest.mark.parametrize("early_ms", [0, 1])
def test_the_age_counts_from_before_the_announcement_was_sent(early_ms: int) -> None:
    bench = Bench()
    bench.log.on_append = lambda topic: bench.clock.advance(1000)
    bench.write([label_set(0)])
    bench.log.on_append = lambda topic: None
    bench.clock.advance(WINDOW_MS - 2000 - early_ms)
    assert waits_for_announcement(bench) == (early_ms == 0)


def waits_for_announcement(bench: Bench) -> bool:
    """Whether a write of the first series waits while `series` does not answer. Checks its error too."""
    bench.log.hold(SERIES)
    before = len(bench.log.of(METRICS))
    try:
        bench.write([label_set(0)], timeout_s=0.5)
    except Unavailable as error:
        return "were not announced" in error.message and len(bench.log.of(METRICS)) == before
    return False


def test_a_wall_clock_that_steps_forgets_too_early_rather_than_too_late() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    announced(bench)
    bench.clock.step(-PRODUCTION.gateway_ahead_ms)
    bench.clock.advance(WINDOW_MS)
    bench.write([label_set(0)])
    assert announced(bench) == [label_set(0)]
    bench.clock.step(WINDOW_MS)
    bench.write([label_set(0)])
    assert announced(bench) == [label_set(0)]


def test_a_late_sample_announces_its_own_epoch_once() -> None:
    bench = Bench()
    one = label_set(0)
    ident = series_id(one)
    boundary_ms = index_epoch_end_ms(ident, index_epoch(ident, NOW_MS))
    bench.clock.advance(boundary_ms + 3_600_000 - NOW_MS)
    late_ms = boundary_ms - 1
    for _ in range(3):
        bench.write([one], counts=[4], ts_ms=[boundary_ms, late_ms, boundary_ms + 1, late_ms - 5])
        bench.write([one], ts_ms=[late_ms])
        bench.write([one])
    epoch = index_epoch(ident, boundary_ms)
    assert sorted(a.epoch for a in bench.log.announcements()) == [epoch - 1, epoch]
    assert index_epoch_start_ms(ident, epoch) == boundary_ms


def test_each_epoch_that_one_row_touches_is_announced_whichever_comes_first() -> None:
    bench = Bench()
    labels = [label_set(number) for number in range(20)]
    for one in labels:
        ident = series_id(one)
        boundary_ms = index_epoch_end_ms(ident, index_epoch(ident, bench.clock.now_ms()))
        bench.clock.advance(boundary_ms - bench.clock.now_ms() + 1)
        bench.write([one], counts=[3], ts_ms=[boundary_ms - 1, boundary_ms, boundary_ms + 1])
        epoch = index_epoch(ident, boundary_ms)
        assert sorted(a.epoch for a in bench.log.announcements() if a.series_id == ident) == [epoch - 1, epoch]


def test_a_restarted_gateway_announces_all_again() -> None:
    bench = Bench()
    labels = [label_set(number) for number in range(10)]
    bench.write(labels)
    announced(bench)
    bench.restart()
    bench.write(labels)
    assert sorted(announced(bench)) == sorted(labels)


def test_the_same_announcement_has_the_same_bytes() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    bench.restart()
    bench.write([label_set(0)])
    first, second = bench.log.of(SERIES)
    assert (first.key, first.value) == (second.key, second.value)


def test_many_writers_of_one_new_series_each_wait_for_an_announcement() -> None:
    bench = Bench()
    bench.log.hold(SERIES)
    writers = [threading.Thread(target=bench.write, args=([label_set(0)],)) for _ in range(8)]
    for writer in writers:
        writer.start()
    while bench.log.waiting < 8:
        assert all(writer.is_alive() for writer in writers)
    assert bench.log.of(METRICS) == []
    bench.log.release()
    for writer in writers:
        writer.join(60.0)
    assert bench.log.decoded().series_id.size == 8


def test_a_time_set_that_accepts_more_than_an_epoch_is_refused() -> None:
    wide = TimeSet("wide", 4 * 3_600_000, 1, 1, 1, 1, 1, 1, EPOCH_MS)
    with pytest.raises(ConfigMismatch, match="must stay below an index epoch"):
        Bench(time_set=wide)


def test_announcements_are_counted() -> None:
    bench = Bench()
    before = sample("tsdb_ingest_announcements_total", kind="new")
    bench.write([label_set(number) for number in range(7)])
    assert sample("tsdb_ingest_announcements_total", kind="new") == before + 7
    assert np.unique(bench.log.decoded().series_id).size == 7


def test_inline_answers_do_not_end_a_batch_half_sent() -> None:
    ended: list[list[Answer | None]] = []
    acks = Acks(ended.append)
    acks.expect()(Appended(0, 0, 0))
    acks.expect()(Unavailable("away"))
    assert ended == []
    acks.seal()
    assert len(ended) == 1


def test_answers_keep_the_order_of_the_appends() -> None:
    acks = Acks(lambda answers: None)
    callbacks = [acks.expect() for _ in range(5)]
    acks.seal()
    for index in (3, 0, 4, 2, 1):
        callbacks[index](Appended(0, index, 0))
    assert [answer.offset for answer in acks.answers if isinstance(answer, Appended)] == [0, 1, 2, 3, 4]


def test_an_empty_batch_ends_at_once() -> None:
    ended: list[list[Answer | None]] = []
    Acks(ended.append).seal()
    assert ended == [[]]


def test_an_append_answered_twice_is_a_bug() -> None:
    acks = Acks(lambda answers: None)
    callback = acks.expect()
    callback(Appended(0, 0, 0))
    with pytest.raises(AssertionError, match="answered twice"):
        callback(Appended(0, 0, 0))


def test_answers_from_many_threads_end_a_batch_once() -> None:
    ended: list[object] = []
    acks = Acks(ended.append)
    callbacks = [acks.expect() for _ in range(400)]
    acks.seal()

    def answer(some: int) -> None:
        for callback in callbacks[some::4]:
            callback(Appended(0, 0, 0))

    threads = [threading.Thread(target=answer, args=(some,)) for some in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 1


class TwoClocks:
    """Wall and monotonic time, moved apart."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        self.monotonic_s = 5.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.monotonic_s

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def test_it_starts_above_zero_and_follows_both_clocks() -> None:
    clock = ManualClock(1_700_000_000_000)
    age = AgeClock(clock)
    assert age.now_ms() == 1
    clock.advance(1500)
    assert age.now_ms() == 1501


def test_a_suspended_machine_ages_by_the_wall() -> None:
    clocks = TwoClocks()
    age = AgeClock(clocks)
    clocks.wall_ms += 60_000
    assert age.now_ms() == 60_001


def test_a_wall_clock_set_back_ages_by_the_monotonic_one() -> None:
    clocks = TwoClocks()
    age = AgeClock(clocks)
    clocks.wall_ms -= 3_600_000
    clocks.monotonic_s += 2.0
    assert age.now_ms() == 2001
    clocks.monotonic_s += 2.0
    clocks.wall_ms += 2000
    assert age.now_ms() == 4001, "and does not wait for the wall to catch up"


def test_many_short_looks_lose_nothing() -> None:
    clocks = TwoClocks()
    age = AgeClock(clocks)
    for _ in range(1000):
        clocks.monotonic_s += 0.0004
        age.now_ms()
    assert age.now_ms() >= 400
