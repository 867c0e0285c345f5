"""The resolver: rows are what the model says on a miss and on a hit, errors are named, no two series have one id."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ingest.limits import IngestLimits
from ingest.refusals import OFFENDERS_MAX
from ingest.rows import ResolvedSeries, Rows, make_rows, unresolved
from ingest.series.resolver import SeriesResolver, conflicts_within
from ingest.series.table import SeriesTable
from support.counters import sample
from support.servers.gateways import PARTITIONS, Bench, label_set
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import SEPARATOR, normalize_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION

RULE = PlacementRule()
WINDOW_MS = PRODUCTION.window_ms


class Resolving:
    """A resolver over its own table."""

    def __init__(self) -> None:
        self.table = SeriesTable(1 << 20, WINDOW_MS)
        self._resolver = SeriesResolver(self.table, RULE, PARTITIONS, IngestLimits())

    def __call__(self, labels: list[bytes]) -> ResolvedSeries:
        return self._resolver.resolve(rows_of(labels), 1)

    def know(self, labels: list[bytes]) -> None:
        """Record an announcement of each series."""
        series = self(labels)
        self.table.set_known(series, np.full(len(labels), 7), WINDOW_MS, 1)


def rows_of(labels: list[bytes]) -> Rows:
    return make_rows(labels, None, np.zeros(len(labels), np.int64), np.zeros(len(labels)))


def misses() -> float:
    return sample("tsdb_ingest_series_cache_misses_total")


def test_rows_are_what_the_model_says_on_a_miss_and_on_a_hit() -> None:
    resolve = Resolving()
    labels = [label_set(number, instance=number % 9, name=f"m{number % 5}") for number in range(300)]
    for known in (False, True):
        series = resolve(labels)
        places = [RULE.place(one) for one in labels]
        assert series.series_id.tolist() == [series_id(one) for one in labels]
        assert series.pack_id.tolist() == [place.pack_id for place in places]
        assert series.partition.tolist() == [partition_of(place.placement, PARTITIONS) for place in places]
        assert series.known.any() == known
        assert not series.errors
        resolve.know(labels)


def test_labels_in_any_order_are_found_and_only_those_in_order_are_hits() -> None:
    resolve = Resolving()
    pairs = [b"__name__\xffm", b"a\xff1", b"b\xff2", b"c\xff3"]
    orders = [SEPARATOR.join(order) for order in permutations(pairs)]
    resolve.know(orders[:1])
    before = misses()
    series = resolve(orders)
    assert set(series.series_id.tolist()) == {series_id(orders[0])}
    assert (series.known == series.known[0]).all()
    assert series.known[0].any()
    assert len(resolve.table) == 1
    assert misses() - before == len(orders) - 1


def test_a_series_is_in_the_table_only_after_its_announcement() -> None:
    resolve = Resolving()
    resolve([label_set(0), b"bad"])
    assert len(resolve.table) == 0
    resolve.know([label_set(0)])
    assert len(resolve.table) == 1


def test_a_row_with_bad_labels_has_the_error_of_the_model() -> None:
    bad = {1: b"bad", 3: b"", 4: b"__name__\xffm\xff__aggr__\xff1", 5: b"__name__\xffm\xffa\xff\xc3"}
    labels = [bad.get(row, label_set(row)) for row in range(7)]
    series = Resolving()(labels)
    assert sorted(series.errors) == sorted(bad)
    for row, error in series.errors.items():
        with pytest.raises(InvalidRequest) as expected:
            normalize_labels(labels[row], IngestLimits().labels)
        assert (error.reason, error.message) == (expected.value.reason, expected.value.message)


def test_only_listed_rows_get_a_text() -> None:
    series = Resolving()([b"bad"] * 100)
    assert {error.reason for error in series.errors.values()} == {"labels_malformed"}
    assert sum("series 'bad'" in error.message for error in series.errors.values()) == OFFENDERS_MAX


def test_rows_that_the_protocol_refused_keep_its_error() -> None:
    rows = rows_of([label_set(0), b""])
    own = InvalidRequest("no such thing", reason="labels_malformed")
    made = Rows(rows.labels, rows.label_starts, rows.starts, rows.ts_ms, rows.values, {1: own})
    resolver = SeriesResolver(SeriesTable(1, WINDOW_MS), RULE, PARTITIONS, IngestLimits())
    assert resolver.resolve(made, 1).errors == {1: own}


def plant_other(table: SeriesTable, ident: int) -> None:
    """Put a series with this id and other labels into the table, as after a collision of 64 bits."""
    other = unresolved(np.array([ident], np.uint64), np.array([12345], np.uint64))
    table.set_known(other, np.array([7]), WINDOW_MS, 1)


def test_two_label_sets_with_one_id_the_second_is_refused_and_counted() -> None:
    bench = Bench()
    plant_other(bench.pipeline._table, series_id(label_set(1)))
    before = sample("tsdb_ingest_refused_samples_total", reason="id_conflict")
    text = rf"series_id {series_id(label_set(1)):016x} is that of another series; series m\{{.*n=\"1\""
    with pytest.raises(InvalidRequest, match=text) as caught:
        bench.write([label_set(1)])
    assert caught.value.reason == "id_conflict"
    assert sample("tsdb_ingest_refused_samples_total", reason="id_conflict") == before + 1
    assert bench.log.records == []
    result = bench.write([label_set(0), label_set(1)], partial=True)
    assert [(o.series_index, o.reason) for o in result.offenders] == [(1, "id_conflict")]
    assert [a.canonical for a in bench.log.announcements()] == [label_set(0)]


def test_of_two_label_sets_with_one_id_in_one_request_the_first_is_taken() -> None:
    ids, checks = np.array([5, 6, 5, 6, 5], np.uint64), np.array([1, 2, 1, 3, 4], np.uint64)
    assert conflicts_within(unresolved(ids, checks)).tolist() == [False, False, False, True, True]


def test_the_table_keeps_the_first_of_two_announced_at_once() -> None:
    table = SeriesTable(1, WINDOW_MS)
    plant_other(table, 5)
    late = unresolved(np.array([5], np.uint64), np.array([99], np.uint64))
    table.set_known(late, np.array([7]), 2 * WINDOW_MS, 1)
    assert not table.find(late).any()
    assert table.recall(late, 1).tolist() == [True]
