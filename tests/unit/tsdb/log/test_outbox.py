"""An outbox: bounded in flight, sent again until acknowledged, given up with its partition."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from support.fakes.fake_log import FakeLog, Fault
from tsdb.chunks.records import ChunkRecord
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.log.chains import chain_of
from tsdb.log.interface import CHUNKS, Log
from tsdb.log.outbox import SEND_AGAIN_S, Outbox
from tsdb.model.clock import ManualClock
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unavailable, WrongTopic
from tsdb.ops.byte_budget import ByteBudget

RECORD = ChunkRecord(b"key", b"value")


class Bench:
    def __init__(self, bytes_max: int = 100) -> None:
        self.clock = ManualClock()
        self.log = FakeLog(1, self.clock)
        self.changed = threading.Event()
        self.budget = ByteBudget(bytes_max, admits_one=True)
        self.chain = chain_of("chunk-stage", self.clock.now_ms)
        self.outbox = Outbox(cast(Log, self.log), CHUNKS, self.budget, self.changed, self.clock, StageMetrics("python"))

    def offer(self, record: ChunkRecord = RECORD) -> bool:
        return self.outbox.offer(0, record.key, record.value, record.headers(self.chain))

    def fail(self, *faults: Fault | None) -> None:
        """Set the results of the next appends; later appends succeed."""
        waiting = list(faults)
        self.log.plan = lambda topic, partition, value: waiting.pop(0) if waiting else None

    @property
    def stored(self) -> list[bytes]:
        return [record.value for record in self.log.of(CHUNKS)]


def test_an_outbox_is_empty_when_all_records_are_acknowledged() -> None:
    bench = Bench()
    assert bench.offer()
    assert bench.outbox.empty
    assert bench.changed.is_set()
    assert bench.stored == [b"value"]


def test_only_chunks_carry_their_due_time() -> None:
    bench = Bench()
    bench.offer(ChunkRecord(b"key", b"value", due_ms=1_500))
    bench.offer()
    chain = chain_of("loader", bench.clock.now_ms)
    chunk, marker = bench.log.of(CHUNKS)
    assert chain.read(chunk.headers).due_at_ms == 1_500
    assert marker.headers == ()


def test_no_more_is_in_flight_than_the_budget_allows_but_always_one() -> None:
    bench = Bench(bytes_max=10)
    bench.log.hold(CHUNKS)
    assert bench.offer(ChunkRecord(b"key", b"x" * 50))
    assert not bench.offer()
    assert not bench.outbox.empty
    bench.log.release()
    assert bench.offer()
    assert bench.outbox.empty


@pytest.mark.parametrize("raised", [False, True])
@pytest.mark.parametrize("error", [Unavailable("away"), Overloaded("full", reason="queue_full")])
def test_records_that_the_log_refused_are_sent_again_after_a_while(error: TsdbError, raised: bool) -> None:
    bench = Bench()
    bench.fail(Fault(error, raised=raised), Fault(error, stored=not raised, raised=raised))
    bench.offer()
    for _ in range(2):
        assert not bench.outbox.empty
        before = bench.stored
        bench.outbox.pump()
        assert bench.stored == before, "not before its time"
        bench.clock.advance(round(SEND_AGAIN_S * 1000))
        bench.outbox.pump()
    assert bench.outbox.empty
    assert set(bench.stored) == {b"value"}


@pytest.mark.parametrize("error", [InvalidRequest("large", reason="record_too_large"), WrongTopic("anew")])
def test_an_error_that_sending_again_cannot_solve_is_raised(error: TsdbError) -> None:
    bench = Bench()
    bench.fail(Fault(error))
    bench.offer()
    with pytest.raises(type(error)):
        bench.outbox.pump()


def test_an_abandoned_outbox_sends_nothing_more_and_gives_its_budget_back() -> None:
    bench = Bench(bytes_max=RECORD.size)
    bench.fail(Fault(Unavailable("away")))
    bench.offer()
    assert not bench.budget.take(1)
    bench.outbox.abandon()
    assert bench.budget.take(1)
    bench.budget.give_back(1)
    bench.clock.advance(10_000)
    bench.outbox.pump()
    assert bench.stored == []


def test_answers_that_come_after_it_was_abandoned_give_their_budget_back_too() -> None:
    bench = Bench(bytes_max=RECORD.size)
    bench.log.hold(CHUNKS)
    bench.fail(Fault(Unavailable("away")))
    bench.offer()
    bench.outbox.abandon()
    bench.log.release()
    assert bench.outbox.empty
    assert bench.budget.take(1)


def test_an_outbox_counts_acknowledgements_and_has_the_last_failure() -> None:
    bench = Bench()
    bench.fail(Fault(Unavailable("away")))
    bench.offer()
    assert (bench.outbox.acknowledged, bench.outbox.failures) == (0, 1)
    assert isinstance(bench.outbox.last_failure, Unavailable)
    bench.clock.advance(round(SEND_AGAIN_S * 1000))
    bench.outbox.pump()
    assert (bench.outbox.acknowledged, bench.outbox.appends) == (1, 2)
    assert not bench.outbox.last_failure
