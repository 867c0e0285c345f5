"""The last records are found as soon as they are read: a broker reports the end only after a wait for more records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import pytest

from tsdb.log.interface import METRICS, EndOfLog, Event, Log, RecordBatch, Watermarks
from tsdb.log.records import last_records


def batch(partition: int, *offsets: int) -> RecordBatch:
    """Records of one byte, which is their offset."""
    starts = np.arange(len(offsets) + 1)
    none, ms = np.zeros(len(offsets) + 1, np.int64), np.zeros(len(offsets), np.int64)
    return RecordBatch(METRICS, partition, bytes(offsets), starts, b"", none, np.array(offsets), ms)


class Scripted:
    """A log of `highs` with one reader, whose events the test sets; a further poll fails the test."""

    def __init__(self, highs: Mapping[int, int], events: Sequence[Event]) -> None:
        self._highs = highs
        self._events = list(events)

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        return {partition: Watermarks(0, self._highs[partition]) for partition in partitions}

    def reader(self, starts: Mapping[tuple[str, int], int], **_: Any) -> Any:
        return nullcontext(self)

    def poll(self, timeout_s: float, **_: Any) -> list[Event]:
        assert self._events, "waits for an end that is known"
        return [self._events.pop(0)]


def last(highs: Mapping[int, int], *events: Event) -> dict[int, int | None]:
    found = last_records(cast(Log, Scripted(highs, events)), METRICS, list(highs))
    return {partition: None if record is None else record.offset for partition, record in found.items()}


def test_the_record_before_the_end_is_the_last() -> None:
    assert last({0: 8, 1: 5}, batch(0, 6, 7), batch(1, 4)) == {0: 7, 1: 4}


def test_appended_meanwhile_is_no_reason_to_read_on() -> None:
    assert last({0: 8, 1: 5}, batch(0, 7, 8, 9), batch(1, 4)) == {0: 9, 1: 4}


@pytest.mark.parametrize("gap", [0, 1])
def test_an_end_without_a_record_is_reported_by_the_broker(gap: int) -> None:
    """Offsets may have gaps: transaction markers take offsets without a record."""
    events: list[Event] = [batch(0, 6 - gap), EndOfLog(METRICS, 0, 8)]
    assert last({0: 8}, *events) == {0: 6 - gap}
