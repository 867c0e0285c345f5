"""Requests that meet at a partition: nothing waits alone, what waits goes as one record, each gets its own answer."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from ingest.appends.partition_queue import MEET_S, WAIT_S, AppendWaits
from ingest.limits import IngestLimits
from support.counters import sample
from support.fakes.fake_log import Fault
from support.fakes.manual_timer import ManualTimer
from support.servers.gateways import NOW_MS, Bench, label_set
from tsdb.chain import Link
from tsdb.log.chains import chain_of
from tsdb.log.interface import METRICS, SERIES
from tsdb.model.clock import ManualClock
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.model.labels import series_id
from tsdb.model.time_set import PRODUCTION

TIMER_S = 0.005
TICK_S = 0.001  # Tick of the clock here: a wait may end with the tick after its time.


def waiting_bench(**limits: int) -> Bench:
    """One series is known, and its next record is in flight; more writes of its partition wait."""
    bench = Bench(limits=IngestLimits(**limits), manual_timer=True)  # type: ignore[arg-type]  # its fields
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    bench.submit([label_set(0)], values=[1.0])
    return bench


def end_waits(bench: Bench) -> None:
    """The time of a wait passes."""
    bench.clock.advance(round(WAIT_S * 1000) + 1)
    bench.timer.fire()


def test_a_request_alone_waits_for_nothing() -> None:
    bench = Bench(manual_timer=True)
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    for sent in range(2, 5):
        answer = bench.submit([label_set(instance, instance=instance) for instance in (0, 0, 0)])
        assert len(bench.log.of(METRICS)) == sent
        bench.log.release()
        assert answer.done()
        bench.log.hold(METRICS)


def test_requests_that_met_wait_for_each_other_and_one_alone_later_does_not() -> None:
    bench = waiting_bench()
    bench.submit([label_set(0)])
    end_waits(bench)
    bench.log.release()
    sent = len(bench.log.of(METRICS))
    answers = [bench.submit([label_set(0)]) for _ in range(2)]
    assert len(bench.log.of(METRICS)) == sent, "the next requests of senders that were answered together meet too"
    end_waits(bench)
    assert len(bench.log.of(METRICS)) == sent + 1
    assert all(answer.done() for answer in answers)
    bench.clock.advance(round(MEET_S * 1000))
    assert bench.submit([label_set(0)]).done()


def test_all_partitions_get_their_records_together() -> None:
    bench = waiting_bench()
    labels = [label_set(0, instance=instance) for instance in range(9)]
    bench.submit(labels)
    bench.log.release()
    for _ in range(3):
        bench.submit(labels)
    before = len(bench.log.of(METRICS))
    end_waits(bench)
    assert len(bench.log.of(METRICS)) == before + bench.partitions


def test_what_arrives_during_an_append_goes_as_one_record_and_every_request_gets_its_token() -> None:
    bench = waiting_bench()
    before = sample("tsdb_ingest_record_parts_total"), sample("tsdb_ingest_records_total")
    answers = [bench.submit([label_set(0)], values=[float(number)], ts_ms=[NOW_MS + number]) for number in range(5)]
    assert len(bench.log.of(METRICS)) == 2
    end_waits(bench)
    assert len(bench.log.of(METRICS)) == 3
    assert not any(answer.done() for answer in answers)
    bench.log.release()
    assert {token.record_offset for answer in answers for token in answer.result().tokens} == {2}
    after = sample("tsdb_ingest_record_parts_total"), sample("tsdb_ingest_records_total")
    assert (after[0] - before[0], after[1] - before[1]) == (6, 2)


def test_of_one_series_and_time_the_request_that_arrived_last_wins() -> None:
    bench = waiting_bench()
    for value in (5.0, 3.0, 4.0):
        bench.submit([label_set(0)], values=[value])
    end_waits(bench)
    bench.log.release()
    assert list(bench.log.samples().values()) == np.array([4.0]).view(np.int64).tolist()


def test_a_part_waits_three_milliseconds_also_while_an_answer_is_slow() -> None:
    bench = waiting_bench()
    bench.submit([label_set(0)])
    bench.clock.advance(2)
    bench.timer.fire()
    assert len(bench.log.of(METRICS)) == 2
    bench.submit([label_set(0)])
    bench.clock.advance(1)
    bench.timer.fire()
    assert len(bench.log.of(METRICS)) == 3


def test_a_full_record_does_not_wait() -> None:
    bench = waiting_bench(record_bytes_max=2000)
    for _ in range(3):
        bench.submit([label_set(0)], counts=[40], ts_ms=range(NOW_MS - 40, NOW_MS))
    records = bench.log.of(METRICS)
    assert len(records) == 3
    assert max(len(record.value) for record in records) <= 2000


@pytest.mark.parametrize("stored", [True, False])
def test_a_failed_record_fails_its_requests_and_no_other(stored: bool) -> None:
    bench = waiting_bench()
    first = [bench.submit([label_set(0)], values=[2.0], ts_ms=[NOW_MS]) for _ in range(3)]
    bench.log.plan = lambda topic, partition, value: Fault(Unavailable("away"), stored=stored)
    end_waits(bench)
    bench.log.plan = lambda topic, partition, value: None
    second = [bench.submit([label_set(0)], values=[7.0], ts_ms=[NOW_MS]) for _ in range(3)]
    end_waits(bench)
    bench.log.release()
    assert [type(answer.exception()) for answer in first] == [Unavailable] * 3
    assert [answer.result().samples for answer in second] == [1] * 3
    assert list(bench.log.samples().values()) == np.array([7.0]).view(np.int64).tolist()


def test_only_the_request_with_a_sample_ahead_of_the_broker_is_refused() -> None:
    bench = waiting_bench()
    ahead = PRODUCTION.gateway_ahead_ms
    good, bad = bench.submit([label_set(0)]), bench.submit([label_set(0)], ts_ms=[NOW_MS + ahead])
    bench.log.broker_ahead_ms = ahead - PRODUCTION.ahead_ms - 10  # The wait takes some of them.
    end_waits(bench)
    bench.log.release()
    assert good.result().samples == 1
    with pytest.raises(Unavailable, match="clocks"):
        bad.result()


def test_parts_that_wait_when_their_request_is_past_its_deadline_are_not_sent() -> None:
    bench = Bench(limits=IngestLimits(record_bytes_max=2000), manual_timer=True)
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    late = bench.submit([label_set(0)], counts=[1000], ts_ms=range(NOW_MS - 1000, NOW_MS), timeout_s=0.5)
    records = len(bench.log.of(METRICS))
    bench.clock.advance(500)
    bench.timer.fire()
    with pytest.raises(Unavailable, match=r"\d\d records are not acknowledged") as caught:
        late.result(0)
    assert caught.value.reason == "deadline"
    assert bench.pipeline.inflight_bytes > 0
    bench.log.release()
    assert len(bench.log.of(METRICS)) == records
    assert bench.pipeline.inflight_bytes == 0


def test_a_request_in_flight_past_its_deadline_lands_and_counts_until_then() -> None:
    bench = Bench(manual_timer=True)
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    late = bench.submit([label_set(0)], values=[9.0], timeout_s=0.5)
    bench.clock.advance(500)
    bench.timer.fire()
    with pytest.raises(Unavailable, match="not acknowledged"):
        late.result(0)
    assert not bench.pipeline.wait_idle(0)
    bench.log.release()
    assert bench.pipeline.wait_idle(0)
    assert 9.0 in bench.log.decoded().value.tolist()


def test_new_series_wait_for_their_announcement_without_a_thread() -> None:
    bench = Bench(manual_timer=True)
    bench.log.hold(SERIES)
    answers = [bench.submit([label_set(number)]) for number in range(100)]
    assert bench.log.of(METRICS) == []
    assert threading.active_count() < 50
    bench.log.release()
    end_waits(bench)
    assert all(answer.result(0).samples == 1 for answer in answers)


def test_a_drain_waits_for_waiting_parts_too() -> None:
    bench = waiting_bench()
    answer = bench.submit([label_set(0)])
    bench.pipeline.close()
    bench.log.release()
    assert not bench.pipeline.wait_idle(0)
    end_waits(bench)
    assert bench.pipeline.wait_idle(0)
    assert answer.result(0).samples == 1


def test_a_joined_record_too_large_is_sent_part_by_part_in_order() -> None:
    bench = waiting_bench()
    answers = [bench.submit([label_set(0)], values=[float(number)]) for number in range(4)]
    bench.log.record_bytes_max = 100  # One sample is a record of 64 bytes.
    bench.log.release()
    for _ in range(5):  # The joined record, and each of its parts.
        end_waits(bench)
    assert all(answer.result(0).samples == 1 for answer in answers)
    assert list(bench.log.samples().values()) == np.array([3.0]).view(np.int64).tolist()


def test_a_part_that_no_record_holds_fails_its_request_alone() -> None:
    bench = waiting_bench()
    answers = [bench.submit([label_set(0)], values=[1.0]) for _ in range(2)]
    bench.log.record_bytes_max = 10
    bench.log.release()
    for _ in range(3):
        end_waits(bench)
    for answer in answers:
        with pytest.raises(InvalidRequest, match=r"one sample .* series m\{"):
            answer.result(0)


def test_the_chain_of_a_joined_record_begins_with_its_oldest_request() -> None:
    bench = waiting_bench()
    bench.submit([label_set(0)])
    bench.clock.advance(2)
    bench.submit([label_set(0)])
    end_waits(bench)
    record = bench.log.of(METRICS)[-1]
    assert chain_of("store", lambda: NOW_MS).read(record.headers) == Link(created_at_ms=NOW_MS)


def test_a_request_of_several_records_has_one_of_them_in_flight() -> None:
    # A later record must not land before an earlier one that the broker finds too large.
    bench = Bench(limits=IngestLimits(record_bytes_max=2000), manual_timer=True)
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    answer = bench.submit([label_set(0)], counts=[1000], ts_ms=[NOW_MS - index % 7 for index in range(1000)])
    bench.clock.advance(50)
    bench.timer.fire()
    assert len(bench.log.of(METRICS)) == 2
    while bench.log.answer(1):
        pass
    last = {(series_id(label_set(0)), NOW_MS - index % 7): float(index) for index in range(1000)}
    got = {key: float(np.int64(bits).view(np.float64)) for key, bits in bench.log.samples().items()}
    assert got == last
    assert [token.record_offset for token in answer.result(0).tokens] == list(range(1, len(bench.log.of(METRICS))))


def test_each_wait_ends_once_in_order_and_in_time() -> None:
    clock = ManualClock(0)
    timer = ManualTimer(clock)
    waits, began, ended = AppendWaits(timer, TIMER_S), list[float](), dict[int, float]()

    def end(number: int) -> None:
        ended[number] = timer.now()

    for number in range(40):
        began.append(timer.now())
        waits.begin(partial(end, number))
        clock.advance(1)
        timer.fire()
    clock.advance(5)
    timer.fire()
    assert list(ended) == list(range(40))
    assert max(ended[number] - began[number] for number in range(35)) < TIMER_S + TICK_S + 1e-9
    assert len(set(ended.values())) <= 9, "those that began within one time end together"


def test_waits_that_begin_together_need_one_wake_of_the_timer() -> None:
    clock = ManualClock(0)
    timer = ManualTimer(clock)
    waits, ended = AppendWaits(timer, TIMER_S), list[int]()
    for number in range(1000):
        waits.begin(partial(ended.append, number))
    assert timer.outstanding == 1
    clock.advance(5)
    timer.fire()
    assert ended == list(range(1000))
    assert timer.outstanding == 0


def test_a_call_that_fails_keeps_no_other_from_its_turn() -> None:
    clock = ManualClock(0)
    timer = ManualTimer(clock)
    waits, ended = AppendWaits(timer, TIMER_S), list[str]()
    waits.begin(lambda: ended.append("before"))
    waits.begin(lambda: [][1])
    waits.begin(lambda: ended.append("after"))
    clock.advance(5)
    failures = 0
    while timer.outstanding:
        try:
            timer.fire()
        except IndexError:
            failures += 1
    assert (ended, failures) == (["before", "after"], 1)
