"""The applied signal: a waiting reader is woken when records are visible, and refused when they never will be."""

from __future__ import annotations

import threading

import pytest

from support.data.heads import Record, apply, new_head
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Unavailable
from tsdb.replay.replay import PartitionProgress
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition
from tsdb.store.readiness import ReadinessEvaluator

WITHIN_S = 120.0  # A machine that compiles kernels meanwhile; a passing test never comes near it.


def partition(since_offset: int = 0) -> Partition:
    head = new_head(since_offset=since_offset)
    return Partition(0, "topic", head, PartitionProgress(since_offset), ReadinessEvaluator(), SystemClock())


def waiting(signal: AppliedSignal, part: Partition, record_offset: int) -> tuple[threading.Thread, list[Unavailable]]:
    refusals: list[Unavailable] = []

    def wait() -> None:
        try:
            signal.wait_for({0: part}, {0: record_offset}, WITHIN_S)
        except Unavailable as error:
            refusals.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, refusals


def test_a_wait_ends_with_the_record_and_not_with_the_one_before() -> None:
    part, signal = partition(), AppliedSignal(SystemClock())
    thread, refusals = waiting(signal, part, 1)
    apply(part.head, [Record(0, 0)])
    signal.notify()
    with pytest.raises(Unavailable, match="record_offset 1 of partition 0 was not applied within 0 s"):
        signal.wait_for({0: part}, {0: 1}, 0.0)
    apply(part.head, [Record(1, 0)])
    signal.notify()
    thread.join(WITHIN_S)
    assert not thread.is_alive()
    assert refusals == []


def test_a_record_below_what_a_fresh_head_holds_is_no_wait() -> None:
    AppliedSignal(SystemClock()).wait_for({0: partition(since_offset=10)}, {0: 9}, 0.0)


def test_a_waiting_reader_is_refused_when_the_store_ends() -> None:
    part, signal = partition(), AppliedSignal(SystemClock())
    thread, refusals = waiting(signal, part, 0)
    signal.close()
    thread.join(WITHIN_S)
    assert [refusal.reason for refusal in refusals] == ["draining"]


def test_a_reader_that_waits_for_a_stopped_partition_is_refused_at_once() -> None:
    part, signal = partition(), AppliedSignal(SystemClock())
    thread, refusals = waiting(signal, part, 0)
    part.progress.stopped, part.progress.stopped_message = "topic_recreated", "another topic"
    signal.notify()
    thread.join(WITHIN_S)
    assert [refusal.reason for refusal in refusals] == ["topic_recreated"]
