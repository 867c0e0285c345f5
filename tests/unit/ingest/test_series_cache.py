"""The series cache: bounded, one slot a series, correct after an eviction, and no two series with one id."""

from __future__ import annotations

import threading
from itertools import permutations

import numpy as np
import pytest

from ingest.limits import IngestLimits
from ingest.series.cache import ALIASES_MAX, SeriesCache
from ingest.series.resolved_rows import NO_SLOT
from support.counters import sample
from support.servers.gateways import PARTITIONS, Bench, label_set
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import SEPARATOR, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule

RULE = PlacementRule()


def cache(*, series: int = 1000, label_bytes: int = 1 << 20) -> SeriesCache:
    limits = IngestLimits(series_cache_max=series, series_cache_bytes_max=label_bytes)
    return SeriesCache(RULE, PARTITIONS, limits)


def misses() -> float:
    return sample("tsdb_ingest_series_cache_misses_total")


def test_rows_are_what_the_model_says_on_a_miss_and_on_a_hit() -> None:
    held = cache()
    labels = [label_set(number, instance=number % 9, name=f"m{number % 5}") for number in range(300)]
    for _ in range(2):
        rows = held.resolve(labels)
        places = [RULE.place(one) for one in labels]
        assert rows.series_id.tolist() == [series_id(one) for one in labels]
        assert rows.pack_id.tolist() == [place.pack_id for place in places]
        assert rows.partition.tolist() == [partition_of(place.placement, PARTITIONS) for place in places]
        assert not rows.errors


def test_a_hit_parses_nothing() -> None:
    held = cache()
    labels = [label_set(number) for number in range(10)]
    held.resolve(labels)
    before = misses()
    held.resolve(labels * 3)
    assert misses() == before


def test_orders_of_the_same_labels_share_one_slot_and_only_some_are_remembered() -> None:
    held = cache()
    pairs = [b"__name__\xffm", b"a\xff1", b"b\xff2", b"c\xff3"]
    orders = [SEPARATOR.join(order) for order in permutations(pairs)]
    rows = held.resolve(orders)
    assert len(set(rows.slot.tolist())) == 1
    assert set(rows.series_id.tolist()) == {series_id(SEPARATOR.join(pairs))}
    assert len(held) == 1
    before = misses()
    held.resolve(orders)
    assert misses() - before == len(orders) - 1 - ALIASES_MAX


def test_never_more_series_than_the_limit_and_the_least_recently_used_go() -> None:
    held = cache(series=64)
    kept = [label_set(number) for number in range(8)]
    held.resolve(kept)
    for start in range(0, 1000, 20):
        held.resolve([label_set(number) for number in range(1000 + start, 1020 + start)])
        assert len(held) <= 64
        before = misses()
        held.resolve(kept)
        assert misses() == before, "what every request uses stays"


def test_more_series_in_a_request_than_the_cache_holds_are_all_right() -> None:
    held = cache(series=16)
    labels = [label_set(number) for number in range(500)]
    rows = held.resolve(labels)
    assert rows.series_id.tolist() == [series_id(one) for one in labels]
    assert len(held) <= 16


def test_bytes_of_labels_are_bounded() -> None:
    held = cache(series=100_000, label_bytes=50_000)
    for start in range(0, 10_000, 500):
        held.resolve([label_set(number, name="x" * 100) for number in range(start, start + 500)])
    assert 50 < len(held) < 1000


def test_evictions_are_counted_and_the_gauge_follows() -> None:
    held = cache(series=32)
    before = sample("tsdb_ingest_series_cache_evictions_total")
    held.resolve([label_set(number) for number in range(100)])
    assert sample("tsdb_ingest_series_cache_evictions_total") - before == 100 - len(held)
    assert sample("tsdb_ingest_series_cached") == len(held)


def test_a_forgotten_series_is_not_known_any_more() -> None:
    bench = Bench(limits=IngestLimits(series_cache_max=4))
    bench.write([label_set(0)])
    bench.write([label_set(number) for number in range(1, 9)])
    bench.write([label_set(0)])
    assert [a.canonical for a in bench.log.announcements()].count(label_set(0)) == 2


def test_a_late_ack_never_marks_the_series_that_took_the_slot() -> None:
    held = cache(series=1)
    first = held.resolve([label_set(0)])
    second = held.resolve([label_set(1)])
    assert first.slot.tolist() == second.slot.tolist()
    row, epoch = np.zeros(1, np.int64), np.array([600])
    held.set_known(first, row, epoch, 10_000, np.array([5_000]))
    held.postpone_renewal(first, row, epoch, 7_000)
    assert not held.resolve([label_set(1)]).known.any()


def test_an_older_ack_never_shortens_a_newer_one() -> None:
    held = cache()
    rows = held.resolve([label_set(0)])
    row, epoch = np.zeros(1, np.int64), np.array([600])
    held.set_known(rows, row, epoch, 20_000, np.array([15_000]))
    held.set_known(rows, row, epoch, 10_000, np.array([5_000]))
    assert held.resolve([label_set(0)]).known[0, 0].tolist() == [600, 20_000, 15_000]


def test_a_row_with_bad_labels_has_an_error_and_no_slot() -> None:
    rows = cache().resolve([label_set(0), b"bad", label_set(1), b""])
    assert {row: error.reason for row, error in rows.errors.items()} == {1: "labels_malformed", 3: "labels_empty"}
    assert (rows.slot == NO_SLOT).tolist() == [False, True, False, True]


def test_two_label_sets_with_one_id_the_second_is_refused_and_counted() -> None:
    bench = Bench(series_id=lambda canonical: 42)
    bench.write([label_set(0)])
    before = sample("tsdb_ingest_refused_samples_total", reason="id_conflict")
    with pytest.raises(
        InvalidRequest, match=r"series_id 000000000000002a is that of m\{.*n=\"0\".*; series m\{.*n=\"1\""
    ) as caught:
        bench.write([label_set(1)])
    assert caught.value.reason == "id_conflict"
    assert sample("tsdb_ingest_refused_samples_total", reason="id_conflict") == before + 1
    assert bench.write([label_set(0)]).samples == 1, "the first goes on"


def test_two_label_sets_with_one_id_in_one_request_the_first_is_taken() -> None:
    bench = Bench(series_id=lambda canonical: 42)
    result = bench.write([label_set(0), label_set(1)], partial=True)
    assert [(o.series_index, o.reason) for o in result.offenders] == [(1, "id_conflict")]
    assert [a.canonical for a in bench.log.announcements()] == [label_set(0)]


def test_concurrent_requests_over_a_small_cache_get_their_own_rows() -> None:
    held = cache(series=50)
    wrong: list[bytes] = []

    def resolve(seed: int) -> None:
        numbers = np.random.default_rng(seed).integers(0, 200, 4000).reshape(-1, 40)
        for some in numbers.tolist():
            labels = [label_set(number) for number in some]
            rows = held.resolve(labels)
            wrong.extend(one for one, got in zip(labels, rows.series_id.tolist(), strict=True) if series_id(one) != got)

    threads = [threading.Thread(target=resolve, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert len(held) <= 50
