"""Exemplars of a head: which stay, in what order, within which bounds, and after a restart."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from support.counters import sample
from support.data.exemplars import One, exemplars_of, plain, records_of
from support.data.heads import id_of, new_head, refs_of
from tsdb.head.exemplars import ROW_BYTES, HeadExemplars
from tsdb.head.head import Head
from tsdb.head.head_image import image_of, restore
from tsdb.head.state import HeadLimits

ENDED = "tsdb_head_exemplars_ended_total"
ALWAYS = (-(1 << 61), 1 << 61)
LIMITS = HeadLimits(fold_entries_min=1, exemplars_series_max=3, exemplars_bytes_max=1 << 20)


def held(exemplars: HeadExemplars, ids: Sequence[int], start_ms: int = ALWAYS[0], end_ms: int = ALWAYS[1]) -> list[One]:
    return plain(exemplars.of(np.array(ids, np.uint64), start_ms, end_ms))


def one(series: int, ts_ms: int, value: float = 1.0, trace: str = "a") -> One:
    return series, ts_ms, value, {"trace_id": trace}


def test_the_last_exemplars_of_each_series_stay() -> None:
    exemplars = HeadExemplars(3, 1 << 20)
    exemplars.add(exemplars_of([one(7, ts) for ts in range(5)] + [one(8, 9)]))
    assert held(exemplars, [7, 8]) == [one(7, 2), one(7, 3), one(7, 4), one(8, 9)]
    exemplars.add(exemplars_of([one(7, 5)]))
    assert held(exemplars, [7]) == [one(7, 3), one(7, 4), one(7, 5)]
    assert held(exemplars, [9]) == held(exemplars, []) == []


def test_a_range_has_its_start_and_not_its_end() -> None:
    exemplars = HeadExemplars(9, 1 << 20)
    exemplars.add(exemplars_of([one(7, ts) for ts in range(5)]))
    assert held(exemplars, [7], 1, 3) == [one(7, 1), one(7, 2)]


def twin(ones: Sequence[One], series_max: int) -> dict[int, list[One]]:
    """The rule of Prometheus, series by series."""
    kept: dict[int, list[One]] = {}
    for found in ones:
        of_series = kept.setdefault(found[0], [])
        newest = of_series[-1] if of_series else None
        if newest is not None and (found[1] < newest[1] or (found[1] == newest[1] and found[2] < newest[2])):
            continue
        if newest != found:
            of_series.append(found)
            del of_series[:-series_max]
    return kept


def test_any_arrivals_leave_what_the_rule_leaves() -> None:
    chance = random.Random(5)
    for _ in range(60):
        ones = [
            one(chance.randrange(3), chance.randrange(6), float(chance.randrange(2)), chance.choice("ab"))
            for _ in range(chance.randrange(40))
        ]
        exemplars, at = HeadExemplars(4, 1 << 20), 0
        while at < len(ones):
            size = chance.randrange(1, 8)
            exemplars.add(exemplars_of(ones[at : at + size]))
            at += size
            if chance.random() < 0.3:
                held(exemplars, [0])
        kept = twin(ones, 4)
        assert held(exemplars, [0, 1, 2]) == [found for series in sorted(kept) for found in kept[series]]


def test_what_memory_does_not_keep_is_counted_by_reason() -> None:
    before = {reason: sample(ENDED, reason=reason) for reason in ("duplicate", "out_of_order", "replaced")}
    exemplars = HeadExemplars(2, 1 << 20)
    exemplars.add(exemplars_of([one(1, 5), one(1, 5), one(1, 4), one(1, 5, 0.5), one(1, 6), one(1, 7)]))
    held(exemplars, [1])
    held(exemplars, [1])  # A read counts nothing.
    exemplars.image()
    assert {reason: sample(ENDED, reason=reason) - was for reason, was in before.items()} == {
        "duplicate": 1,
        "out_of_order": 2,
        "replaced": 1,
    }


def test_a_value_that_is_no_number_equals_none_and_has_no_order() -> None:
    exemplars = HeadExemplars(9, 1 << 20)
    exemplars.add(exemplars_of([one(1, 5, float("nan")), one(1, 5, float("nan")), one(1, 5, 1.0)]))
    assert exemplars.count == 3
    assert len(held(exemplars, [1])) == 3


def test_the_oldest_of_all_series_go_at_the_limit_of_bytes() -> None:
    size = ROW_BYTES + len(b"trace_id\xffa")
    evicted = sample(ENDED, reason="evicted")
    exemplars = HeadExemplars(100, 8 * size)
    exemplars.add(exemplars_of([one(series, 100 - series) for series in range(8)]))
    assert len(held(exemplars, range(8))) == 8
    exemplars.add(exemplars_of([one(9, 0)]))
    # Three quarters of the limit are left, so that not each further exemplar sorts all of them.
    assert [series for series, *_ in held(exemplars, range(10))] == [3, 4, 5, 6, 7, 9]
    assert exemplars.bytes <= 8 * size
    assert sample(ENDED, reason="evicted") - evicted == 3


def head_with(groups: Sequence[Sequence[One]], series: int = 3, limits: HeadLimits = LIMITS) -> Head:
    head = new_head(series=series, limits=limits)
    records = records_of(groups)
    offsets = np.arange(len(groups), dtype=np.int64)
    head.apply(records, offsets, offsets)
    return head


def test_a_head_keeps_exemplars_of_its_series_and_counts_the_others() -> None:
    unknown = sample(ENDED, reason="unknown_series")
    head = head_with([[one(id_of(0), 1)], [one(id_of(1), 2), one(12345, 3)]])
    assert plain(head.exemplars_of(refs_of(head, [1]), *ALWAYS)) == [one(id_of(1), 2)]
    assert sample(ENDED, reason="unknown_series") - unknown == 1
    assert head.applied_offset == 1
    assert head.sizes().exemplars == 2


def test_a_record_applied_again_adds_nothing() -> None:
    head = head_with([[one(id_of(0), 1)]])
    records = records_of([[one(id_of(0), 1)], [one(id_of(0), 2)]])
    offsets = np.array([0, 1], np.int64)
    assert head.apply(records, offsets, offsets).exemplars == 1
    assert plain(head.exemplars_of(refs_of(head, [0]), *ALWAYS)) == [one(id_of(0), 1), one(id_of(0), 2)]


def test_unknown_ids_name_the_series_of_exemplars() -> None:
    head = new_head(series=1, limits=LIMITS)
    assert head.unknown_ids(records_of([[one(id_of(0), 1), one(77, 1)]])).tolist() == [77]


def test_a_head_without_a_limit_of_bytes_keeps_and_asks_for_nothing() -> None:
    head = head_with([[one(id_of(0), 1), one(77, 1)]], limits=HeadLimits(exemplars_bytes_max=0))
    assert head.exemplars.count == 0
    assert not len(head.unknown_ids(records_of([[one(77, 1)]])))


def test_exemplars_count_in_the_memory_of_a_head() -> None:
    head = new_head(series=1, limits=LIMITS)
    before = head.memory.bytes
    records = records_of([[one(id_of(0), 1)]])
    head.apply(records, np.zeros(1, np.int64), np.zeros(1, np.int64))
    assert head.memory.bytes - before >= ROW_BYTES


def test_an_image_brings_the_exemplars_back_and_their_order() -> None:
    head = head_with([[one(id_of(1), 1), one(id_of(0), 2)], [one(id_of(0), 3, trace="b")]])
    again = new_head(limits=LIMITS)
    restore(again, image_of(head))
    refs = refs_of(again, [0, 1])
    assert plain(again.exemplars_of(refs, *ALWAYS)) == plain(head.exemplars_of(refs, *ALWAYS))
    records = records_of([[one(id_of(0), 2)], [one(id_of(0), 4)]])
    again.apply(records, np.array([2, 3], np.int64), np.array([2, 3], np.int64))
    assert [ts for _, ts, *_ in plain(again.exemplars_of(refs_of(again, [0]), *ALWAYS))] == [2, 3, 4]


def test_an_image_without_exemplars_has_none() -> None:
    assert image_of(new_head(series=1, limits=LIMITS)).exemplars is None
