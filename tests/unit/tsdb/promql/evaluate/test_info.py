"""info(): the times at which it looks for info series, and the series that it looks for. As Prometheus 3.15."""

from __future__ import annotations

import pytest

from tsdb.promql.evaluate.query import QueryOptions, range_query
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.unit_tests.notation import labels_of

MINUTE_MS = 60_000


@pytest.fixture
def storage() -> MemoryStorage:
    """Minutes 0 to 59 of `m`; `target_info` has version v0 up to minute 9, v1 up to 19, and so on."""
    found = MemoryStorage()
    found.add(labels_of({"__name__": "m", "job": "a", "instance": "1"}), [(t * MINUTE_MS, 1.0) for t in range(60)])
    for tens in range(6):
        labels = {"__name__": "target_info", "job": "a", "instance": "1", "version": f"v{tens}"}
        samples = [(t * MINUTE_MS, 1.0) for t in range(10 * tens, 10 * tens + 10)]
        found.add(labels_of(labels), samples)
    return found


def versions(storage: MemoryStorage, query: str, minute: int = 35) -> list[str]:
    """Versions that the series have at one minute; "" without one."""
    options = QueryOptions(ALL_FEATURES, lookback_ms=MINUTE_MS)
    at_ms = minute * MINUTE_MS
    found = range_query(query, storage, at_ms, at_ms, MINUTE_MS, options).value
    assert isinstance(found, Block)
    return found.labels.texts("version")


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ("info(m)", "v3"),
        ("info(m offset 20m)", "v1"),
        ("info(m @ 300)", "v0"),
        ("info(m @ 300 offset -10m)", "v1"),
        ("info(rate(m[5m] offset 20m))", "v1"),
        ("info(max_over_time(m[3m:1m] offset 20m))", "v1"),
        ("info(max_over_time((m offset 10m)[3m:1m] offset 10m))", "v1"),
        ("info(max_over_time((m @ 900 offset 10m)[3m:1m] offset 10m))", "v0"),
        ("info(max_over_time((m offset 10m)[3m:1m] @ 1500))", "v1"),
        ("info(info(m offset 20m))", "v1"),
        ('info(m offset 20m, {version=~".+"})', "v1"),
        # Selectors that look at several times: those of the steps.
        ("info(m offset 20m + on (job, instance) m)", "v3"),
        ("info(m @ 300 + on (job, instance) m @ 900)", "v3"),
        ("info(m @ 300 + on (job, instance) m offset 20m)", "v3"),
        ("info(m @ 300 + on (job, instance) m @ 900 offset 10m)", "v0"),
        ("info(m @ end() offset 20m + on (job, instance) m offset 20m)", "v3"),
        # A vector without a selector has the times of the steps.
        ("info(m offset 20m or vector(1))", "v3"),
        ("info(m offset 20m + scalar(m))", "v1"),
        ("info(m offset 20m * 2)", "v1"),
    ],
)
def test_info_looks_at_the_time_of_its_selectors(storage: MemoryStorage, query: str, version: str) -> None:
    assert set(versions(storage, query)) - {""} == {version}


def test_different_fixed_times_leave_the_times_of_the_steps(storage: MemoryStorage) -> None:
    query = "info(m @ 300 + on (job, instance) m @ 900)"
    found = range_query(query, storage, 5 * MINUTE_MS, 55 * MINUTE_MS, 10 * MINUTE_MS, QueryOptions(ALL_FEATURES)).value
    assert isinstance(found, Block)
    assert sorted(found.labels.texts("version")) == [f"v{tens}" for tens in range(6)]


@pytest.mark.parametrize("present", [("job",), ("instance",), ("job", "instance")])
def test_base_series_with_different_identifying_labels_have_their_own_info(present: tuple[str, ...]) -> None:
    storage = MemoryStorage()
    choices: list[tuple[str, ...]] = [("job",), ("instance",), ("job", "instance")]
    for names in choices:
        labels = dict.fromkeys(names, "a")
        storage.add(labels_of({"__name__": "m", **labels}), [(0, 1.0)])
        storage.add(labels_of({"__name__": "target_info", "version": "-".join(names), **labels}), [(0, 1.0)])
    found = range_query("info(m)", storage, 0, 0, MINUTE_MS, QueryOptions(ALL_FEATURES)).value
    assert isinstance(found, Block)
    rows = [found.labels.row(row) for row in range(len(found))]
    (row,) = [row for row in rows if {"job", "instance"} & row.keys() == set(present)]
    assert row["version"] == "-".join(present)


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, 30_000])
def test_info_of_many_instances(count: int) -> None:
    storage = MemoryStorage()
    for row in range(count):
        labels = {"job": "a", "instance": f"a-host-name-of-some-length-{row}.example.com:9100"}
        storage.add(labels_of({"__name__": "m", **labels}), [(0, 1.0)])
        storage.add(labels_of({"__name__": "target_info", "version": str(row % 7), **labels}), [(0, 1.0)])
    found = range_query("count by (version) (info(m))", storage, 0, 0, MINUTE_MS, QueryOptions(ALL_FEATURES)).value
    assert isinstance(found, Block)
    assert found.labels.texts("version") == [str(number) for number in range(7)]
    assert found.values.sum() == count
