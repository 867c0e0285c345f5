"""The storage of test scripts answers as the protocol of Storage wants it."""

from __future__ import annotations

import pytest

from support.promql.histograms import HistogramStorage
from tsdb.model.labels import canonical_labels
from tsdb.model.stale import STALE
from tsdb.rules.memory import MemoryStorage, OverlaidStorage
from tsdb.rules.repair import HidingStorage
from tsdb.rules.unit_tests.histograms import HistogramValue
from tsdb.rules.unit_tests.notation import labels_of
from tsdb.selector.selectors import parse_selector

SERIES: list[dict[str, str]] = [
    {"__name__": "x", "a": "1"},
    {"__name__": "x", "a": "2", "b": "c\nd"},
    {"__name__": "x", "a1": "2"},
    {"__name__": "y"},
]


@pytest.fixture
def storage() -> MemoryStorage:
    found = MemoryStorage()
    for series in reversed(SERIES):
        found.add(labels_of(series), [(20, 2.0), (10, 1.0), (30, STALE)])
    return found


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("x", [0, 1, 2]),
        ('x{a="1"}', [0]),
        ('x{a=""}', [2]),
        ('x{a!="1"}', [1, 2]),
        ('x{a!=""}', [0, 1]),
        ('x{a=~"1|2"}', [0, 1]),
        ('x{a=~".*"}', [0, 1, 2]),
        ('x{a=~".+"}', [0, 1]),
        ('x{a!~"1.*"}', [1, 2]),
        ('x{b=~"c.d"}', [1]),
        ('x{b=~"c"}', []),
        ('{__name__=~"[xy]",a=""}', [2, 3]),
        ('{__name__="x",__name__="y"}', []),
    ],
)
def test_matchers(storage: MemoryStorage, selector: str, expected: list[int]) -> None:
    found = storage.select(parse_selector(selector), 0, 100)
    assert list(found.labels) == [canonical_labels(SERIES[index]) for index in expected]


def test_both_ends_of_the_range_are_inside(storage: MemoryStorage) -> None:
    found = storage.select(parse_selector("x"), 10, 20)
    assert found.starts.tolist() == [0, 2, 4, 6]
    assert found.ts_ms.tolist() == [10, 20] * 3
    assert found.values.tolist() == [1.0, 2.0] * 3


def test_stale_markers_keep_their_bits(storage: MemoryStorage) -> None:
    found = storage.select(parse_selector("y"), 30, 30)
    assert found.values.view("u8").tolist() == [0x7FF0000000000002]


def test_series_without_samples_in_the_range_are_left_out(storage: MemoryStorage) -> None:
    found = storage.select(parse_selector("x"), 31, 100)
    assert (list(found.labels), found.starts.tolist(), len(found.ts_ms)) == ([], [0], 0)


def test_loads_of_one_series_join(storage: MemoryStorage) -> None:
    storage.add(labels_of({"__name__": "y"}), [(15, 9.0), (40, 4.0)])
    assert storage.select(parse_selector("y"), 0, 29).ts_ms.tolist() == [10, 15, 20]
    storage.clear()
    assert not storage.select(parse_selector("y"), 0, 100).labels


def test_newer_samples_in_memory_join_those_of_a_storage_and_win(storage: MemoryStorage) -> None:
    newer = MemoryStorage()
    newer.add(labels_of({"__name__": "x", "a": "1"}), [(20, 9.0), (25, 8.0)])
    newer.add(labels_of({"__name__": "x", "new": "1"}), [(25, 7.0)])
    found = OverlaidStorage(storage, newer).select(parse_selector("x"), 15, 25)
    rows = {
        labels: (found.ts_ms[start:end].tolist(), found.values[start:end].tolist())
        for labels, start, end in zip(found.labels, found.starts[:-1], found.starts[1:], strict=True)
    }
    assert rows == {
        canonical_labels(SERIES[0]): ([20, 25], [9.0, 8.0]),
        canonical_labels(SERIES[1]): ([20], [2.0]),
        canonical_labels(SERIES[2]): ([20], [2.0]),
        canonical_labels({"__name__": "x", "new": "1"}): ([25], [7.0]),
    }


def test_memory_without_a_match_leaves_an_answer_as_it_is(storage: MemoryStorage) -> None:
    found = OverlaidStorage(storage, MemoryStorage()).select(parse_selector("x"), 0, 25)
    assert found.ts_ms.tolist() == storage.select(parse_selector("x"), 0, 25).ts_ms.tolist()


def test_newer_samples_leave_the_details_of_others(storage: MemoryStorage) -> None:
    details = HistogramStorage()
    value = HistogramValue(0, 4.0, 8.0, positive={1: 4.0})
    details.add_histograms(labels_of({"__name__": "x", "a": "1"}), [(10, value), (20, value), (30, value)])
    details.add_start(labels_of({"__name__": "x", "a": "1"}), 30, 5)
    newer = MemoryStorage()
    newer.add(labels_of({"__name__": "x", "a": "1"}), [(20, 9.0), (25, 7.0)])
    newer.add(labels_of({"__name__": "x", "new": "1"}), [(25, 7.0)])
    found = OverlaidStorage(details, newer).select(parse_selector("x"), 0, 35)
    assert found.ts_ms.tolist() == [10, 20, 25, 30, 25]
    assert found.values.tolist() == [8.0, 9.0, 7.0, 8.0, 7.0]
    assert found.details is not None
    assert found.details.start_ms is not None
    assert found.details.start_ms.tolist() == [0, 0, 0, 5, 0]
    assert found.details.histogram_of is not None
    assert found.details.histogram_of.tolist() == [0, -1, -1, 1, -1]


def test_a_hidden_sample_leaves_the_details_of_others() -> None:
    labels = labels_of({"__name__": "x"})
    storage = HistogramStorage()
    storage.add(labels, [(10, 1.0)])
    storage.add_histograms(labels, [(20, HistogramValue(0, 4.0, 8.0, positive={1: 4.0}))])
    storage.add_start(labels, 20, 5)
    found = HidingStorage(storage, [parse_selector("x")], 10).select(parse_selector("x"), 0, 35)
    assert (found.ts_ms.tolist(), found.values.tolist()) == ([20], [8.0])
    assert found.details is not None
    assert found.details.start_ms is not None
    assert found.details.start_ms.tolist() == [5]
    assert found.details.histograms is not None
    assert found.details.histograms.counts.tolist() == [4.0]
