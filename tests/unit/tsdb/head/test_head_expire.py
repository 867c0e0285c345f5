"""Series leave the index when they have no samples and were not announced for two windows."""

from __future__ import annotations

import numpy as np
import pytest

from support.data.heads import SMALL_TIMES, Record, apply, id_of, new_head, refs_of, register, samples_of
from tsdb.codec.records.series_record import decode_announcements, encode_announcement
from tsdb.head.head import RELEASE_AFTER, Head
from tsdb.head.state import HeadLimits
from tsdb.model.errors import Overloaded
from tsdb.model.labels import canonical_labels, series_id

WINDOW_MS = SMALL_TIMES.window_ms


def known(head: Head) -> set[int]:
    ids = set(head.index.series_ids_of(head.index.all_refs()).tolist())
    return {number for number in range(10) if id_of(number) in ids}


def test_a_series_without_samples_goes_two_windows_after_its_last_announcement() -> None:
    head = new_head()
    register(head, [0, 1], broker_ms=1000)
    register(head, [2], broker_ms=1500)
    apply(head, [Record(0, 1000 + 2 * WINDOW_MS, ((1, 1000 + 2 * WINDOW_MS, 1.0),))])
    head.maintain()
    assert known(head) == {0, 1, 2}, "announced exactly two windows ago"
    apply(head, [Record(1, 1000 + 3 * WINDOW_MS)])
    assert head.maintain().forgotten_series == 1
    assert known(head) == {1, 2}, "one has a sample, one was announced since"


@pytest.mark.parametrize("back_ms", [0, 5, 300, 2000], ids=["open", "ring", "late", "below"])
def test_a_series_with_a_sample_anywhere_stays(back_ms: int) -> None:
    head = new_head(coverage_start_ms=9000, from_start=False)
    register(head, [0], broker_ms=0)
    apply(head, [Record(0, 10_000, ((0, 10_000 - back_ms, 1.0),))])
    head.maintain()
    head.maintain()
    assert known(head) == {0}


def test_refs_of_forgotten_series_are_used_again_only_after_reads_of_before_are_over() -> None:
    head = new_head()
    register(head, [0], broker_ms=0)
    (old,) = refs_of(head, [0])
    apply(head, [Record(0, 10_000)])
    head.maintain()
    register(head, [1])
    assert refs_of(head, [1])[0] != old
    for _ in range(RELEASE_AFTER):
        head.maintain()
    register(head, [2])
    (again,) = refs_of(head, [2])
    assert again == old
    apply(head, [Record(1, 10_001, ((2, 10_001, 5.0),))])
    assert samples_of(head.gather_raw(refs_of(head, [2]), 0, 20_000), [2]) == {2: {10_001: 5.0}}


def test_at_the_limit_of_labels_series_that_end_make_room_for_new_ones() -> None:
    limits = HeadLimits(memory_hard_bytes=2 << 20)
    head = new_head(limits=limits)
    with pytest.raises(Overloaded, match="bytes of labels; its limit is 1048576"):
        register_long(head, 10_000, broker_ms=1000)
    with pytest.raises(Overloaded, match="bytes of labels; its limit is 1048576"):
        register(head, [1])
    held = head.sizes().index_bytes
    apply(head, [Record(0, 1000 + 4 * WINDOW_MS)])
    assert head.maintain().forgotten_series > 100
    for _ in range(RELEASE_AFTER + 1):
        head.maintain()
    assert head.sizes().index_bytes < held // 2
    register(head, [1])
    assert known(head) == {1}


def register_long(head: Head, count: int, broker_ms: int) -> None:
    """Series with 2 KB of labels, one at a time."""
    for number in range(count):
        labels = canonical_labels({"__name__": "long", "text": f"{number}".ljust(2000, "x")})
        key, value = encode_announcement(series_id(labels), 0, 1, labels)
        decoded = decode_announcements(key, np.array([0, len(key)]), value, np.array([0, len(value)]))
        head.register(decoded, value, np.array([broker_ms]))
