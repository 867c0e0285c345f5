from __future__ import annotations

import numpy as np

from support.data.heads import new_head
from tsdb.codec.records.series_record import decode_announcements, encode_announcement
from tsdb.head.head import Head
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.model.labels import canonical_labels, series_id
from tsdb.store.memory_reports import AGAIN_S, SOURCES_MAX, MemoryReports

FULL = Overloaded("partition 0 is full", reason="memory_hard")


def announce(head: Head, job: str, count: int) -> None:
    for number in range(count):
        labels = canonical_labels({"__name__": "m", "job": job, "instance": "i", "n": str(number)})
        key, value = encode_announcement(series_id(labels), 0, 1, labels)
        decoded = decode_announcements(key, np.array([0, len(key)]), value, np.array([0, len(value)]))
        head.register(decoded, value, np.array([1 << 60]))


def test_the_largest_sources_come_first_and_are_few() -> None:
    head = new_head()
    for number in range(SOURCES_MAX + 3):
        announce(head, f"job{number}", 2 + number)
    message = MemoryReports(("job", "instance"), ManualClock()).message(head, FULL)
    named = [f'job="job{number}",instance="i" {2 + number} series' for number in reversed(range(3, SOURCES_MAX + 3))]
    assert ", ".join(named) in message
    assert 'job="job2"' not in message


def test_a_long_value_and_an_absent_label_are_shown_short() -> None:
    head = new_head(series=1)
    announce(head, "x" * 1000, 2)
    message = MemoryReports(("job", "zone"), ManualClock()).message(head, FULL)
    assert 'job="test",zone="" 1 series' in message
    assert len(message) < 700


def test_the_count_is_made_at_most_once_a_minute() -> None:
    head, clock = new_head(), ManualClock()
    reports = MemoryReports(("job", "instance"), clock)
    announce(head, "a", 1)
    first = reports.message(head, FULL)
    announce(head, "b", 5)
    assert reports.message(head, FULL) == first
    clock.advance(round(AGAIN_S * 1000))
    assert 'job="b",instance="i" 5 series' in reports.message(head, FULL)


def test_other_reasons_have_no_report() -> None:
    assert MemoryReports(("job",), ManualClock()).message(new_head(), Unavailable("away", reason="timeout")) == ""
