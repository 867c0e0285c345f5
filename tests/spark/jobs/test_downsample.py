"""downsample: derived series are what a loop over all samples makes, also after late data, and only once a window."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.result import DownsampleResult
from support.data.late_storm import FIRST_WINDOW
from support.oracles.histogram_twin import Hist, same
from support.servers.histories import META, WINDOW_MS
from support.servers.loaders import is_loaded
from support.servers.logs import wait_until
from support.spark.derived import derived, derived_histograms, filled, wanted, wanted_histograms, write_histograms
from support.spark.import_faults import GRAVES, DyingPlaces
from support.spark.storm_pair import StormPair
from tsdb.log.downsampled import read_downsampled
from tsdb.log.interface import METRICS
from tsdb.model.clock import SystemClock
from tsdb.model.histograms import RESET
from tsdb.model.resolution import RESOLUTIONS_MS
from tsdb.query.history.index import HistoryIndex
from tsdb.query.history.index_generation import IndexGeneration

OPTIONS = DownsampleOptions(loader_timeout_ms=120_000, tasks=8)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[StormPair]:
    with filled(f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db") as made:
        yield made


@pytest.fixture(params=["embedded", "servers"])
def either(request: pytest.FixtureRequest) -> Iterator[StormPair]:
    if request.param == "embedded":
        yield request.getfixturevalue("pair")
        return
    broker, node = request.getfixturevalue("kafka"), request.getfixturevalue("cassandra")
    with filled(f"kafka://{broker.bootstrap}", f"cassandra://{node.host}:{node.port}/downsample") as made:
        yield made


def run_job(pair: StormPair, spark: SparkSession, options: DownsampleOptions = OPTIONS) -> DownsampleResult:
    return downsample(spark, pair.places, META, options)


def test_every_aggregate_equals_that_of_a_loop_and_includes_late_data(either: StormPair, spark: SparkSession) -> None:
    pair = either
    kept = HistoryIndex(pair.history, IndexGeneration(pair.log, pair.log.topic_id(METRICS), SystemClock()).now)
    with pair.loading():
        wait_until(lambda: is_loaded(pair.log))
        assert derived(pair, "5m", kept) == {}
        first = run_job(pair, spark)
        assert first.ok
        assert derived(pair, "5m", kept) == wanted(pair, RESOLUTIONS_MS["5m"]), "a querier that looked before"
        assert first.windows_stale == first.windows == len(pair.storm.parts)
        for resolution, length_ms in RESOLUTIONS_MS.items():
            assert derived(pair, resolution) == wanted(pair, length_ms), resolution
        assert run_job(pair, spark).windows_stale == 0
        late = sorted(pair.storm.partition)[:2]
        pair.late(late)
        wait_until(lambda: is_loaded(pair.log))
        again = run_job(pair, spark)
        assert run_job(pair, spark).windows_stale == 0
        anew = run_job(pair, spark, dataclasses.replace(OPTIONS, again=True))
    assert again.windows_stale == 2 * pair.storm.windows
    assert anew.windows_stale == len(pair.storm.parts)
    for resolution, length_ms in RESOLUTIONS_MS.items():
        assert derived(pair, resolution) == wanted(pair, length_ms), resolution
    said = read_downsampled(pair.log)
    assert said.keys() == RESOLUTIONS_MS.keys()
    assert all(span.start_ms <= FIRST_WINDOW * WINDOW_MS < span.end_ms for span in said.values())


def test_histograms_are_downsampled_as_by_a_loop(either: StormPair, spark: SparkSession) -> None:
    pair = either
    windows = write_histograms(pair)
    with pair.loading():
        wait_until(lambda: is_loaded(pair.log))
        assert run_job(pair, spark).windows_refused == 0
    for resolution, length_ms in RESOLUTIONS_MS.items():
        found, want = derived_histograms(pair, resolution), wanted_histograms(windows, length_ms)
        assert found.keys() == want.keys(), resolution
        assert [key for key in want if not same(found[key], want[key])] == [], resolution
        lasts = [one for (name, *_), one in found.items() if name == "last" and isinstance(one, Hist)]
        assert sum(one.hint == RESET for one in lasts) == {"5m": 9, "1h": 8}[resolution], "steps with a reset"


@pytest.mark.soak  # In each run tests/spark/test_killed_tasks.py has both for folds, which write the same way.
def test_workers_that_die_and_twins_derive_the_same(pair: StormPair, spark: SparkSession, tmp_path: Path) -> None:
    graves = tmp_path / GRAVES
    with pair.loading():
        assert downsample(spark, DyingPlaces.of(pair.places, graves, 2), META, OPTIONS).ok
        assert any(graves.iterdir()), "no worker died among its appends"
        for resolution, length_ms in RESOLUTIONS_MS.items():
            assert derived(pair, resolution) == wanted(pair, length_ms), resolution
        pair.late()
        wait_until(lambda: is_loaded(pair.log))
        with ThreadPoolExecutor(2) as pool:
            for twin in [pool.submit(run_job, pair, spark) for _ in range(2)]:
                assert twin.result().ok
    for resolution, length_ms in RESOLUTIONS_MS.items():
        assert derived(pair, resolution) == wanted(pair, length_ms), resolution
