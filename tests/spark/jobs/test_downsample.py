"""downsample: derived series are what a loop over all samples makes, also after late data, and only once a window."""

from __future__ import annotations

import dataclasses
import struct
import uuid
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.jobs.downsample.result import DownsampleResult
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from support.data.late_storm import EVER, FIRST_WINDOW
from support.oracles.derived_twin import LastValues, derived_twin
from support.servers.histories import META, WINDOW_MS, HistoryFactory
from support.servers.loaders import is_loaded
from support.servers.logs import LogFactory, wait_until
from support.spark.import_faults import GRAVES, DyingPlaces
from support.spark.storm_pair import StormPair
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.history.interface import Loaded
from tsdb.history.merge import merge
from tsdb.log.downsampled import read_downsampled
from tsdb.log.interface import METRICS
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, Unavailable
from tsdb.model.labels import series_id
from tsdb.model.meta import MetaSettings
from tsdb.model.resolution import AGGREGATES, RESOLUTION, RESOLUTIONS_MS, derived_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.model.time_set import DEMO
from tsdb.query.history.index import Choice, HistoryIndex
from tsdb.query.history.index_generation import IndexGeneration

OPTIONS = DownsampleOptions(loader_timeout_ms=120_000, tasks=8)
Derived = dict[tuple[str, int, int], bytes]  # (aggregate, source, bucket) -> bits


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[StormPair]:
    yield from _filled(f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db")


@pytest.fixture(params=["embedded", "servers"])
def either(request: pytest.FixtureRequest) -> Iterator[StormPair]:
    if request.param == "embedded":
        yield request.getfixturevalue("pair")
        return
    broker, node = request.getfixturevalue("kafka"), request.getfixturevalue("cassandra")
    yield from _filled(f"kafka://{broker.bootstrap}", f"cassandra://{node.host}:{node.port}/downsample")


def _filled(log_url: str, history_url: str) -> Iterator[StormPair]:
    with LogFactory(log_url, f"t{uuid.uuid4().hex[:12]}.") as log, HistoryFactory(history_url) as history:
        history.create()
        made = StormPair(log, history)
        made.storm.packs = 6
        made.filled()
        yield made


def run_job(pair: StormPair, spark: SparkSession, options: DownsampleOptions = OPTIONS) -> DownsampleResult:
    return downsample(spark, pair.places, META, options)


def wanted(pair: StormPair, resolution_ms: int) -> Derived:
    """Derived samples by the twin, window after window, of the samples that reads return."""
    found: Derived = {}
    windows: dict[int, list[int]] = defaultdict(list)
    for pack_id, window in sorted(pair.storm.wanted):
        windows[pack_id].append(window)
    for pack_id, starts in windows.items():
        last: LastValues = {}
        for window in starts:
            samples = {
                key: struct.unpack("<d", struct.pack("<Q", bits))[0]
                for key, (_, bits) in pair.storm.wanted[pack_id, window].items()
            }
            made = derived_twin(samples, last, resolution_ms)
            found |= {key: struct.pack("<d", value) for key, value in made.items()}
    return found


def derived(pair: StormPair, resolution: str, index: HistoryIndex | None = None) -> Derived:
    """Derived samples as a reader finds them, by the labels of the sources. index: the reader's cached index."""
    index = index or HistoryIndex(pair.history)
    needs = dict.fromkeys(range(META.partitions), 0)
    loaded = {partition: Loaded("topic", partition, 100, 0) for partition in needs}
    start_ms, end_ms = FIRST_WINDOW * WINDOW_MS, (FIRST_WINDOW + pair.storm.windows) * WINDOW_MS
    sources = index.find(Choice(()), start_ms, end_ms, loaded, needs)
    names = {
        series_id(derived_labels(canonical, resolution, aggregate)): (aggregate, series_id(canonical))
        for series in sources.values()
        for canonical in series.labels
        for aggregate in AGGREGATES
    }
    choice = Choice((Matcher(MatchType.EQUAL, RESOLUTION, resolution),))
    packs = {
        pack for series in index.find(choice, start_ms, end_ms, loaded, needs).values() for pack in series.pack_ids
    }
    assert packs.isdisjoint(pair.storm.partition)
    found: Derived = {}
    for piece in _windows(pair, sorted(packs)):
        fragment = merge(piece)
        series = np.repeat(fragment.series_id, np.diff(fragment.sample_start)).tolist()
        bits = [struct.pack("<d", value) for value in fragment.value.tolist()]
        for one, ts_ms, value in zip(series, fragment.ts_ms.tolist(), bits, strict=True):
            aggregate, source = names[one]
            found[aggregate, source, ts_ms] = value
    return found


def _windows(pair: StormPair, packs: list[int]) -> list[list]:  # type: ignore[type-arg]
    windows = defaultdict(list)
    for piece in pair.history.read(packs, EVER):
        for row in piece:
            windows[row.key.pack_id, row.key.window_start_ms].append(decode_chunk(row.value))
    return list(windows.values())


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


def test_a_fold_of_the_source_makes_nothing_stale(pair: StormPair, spark: SparkSession) -> None:
    fold = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, loader_timeout_ms=120_000, tasks=8)
    with pair.loading():
        run_job(pair, spark)
        merge_late(spark, pair.places, META, fold)
        merge_late(spark, pair.places, META, fold)
        assert run_job(pair, spark).windows_stale == 0
        pair.late()
        wait_until(lambda: is_loaded(pair.log))
        merge_late(spark, pair.places, META, fold)
        merge_late(spark, pair.places, META, fold)
        folded = run_job(pair, spark)
        assert run_job(pair, spark).windows_stale == 0
    assert folded.windows_stale == len(pair.storm.parts), "what was folded meanwhile still counts as new"
    for resolution, length_ms in RESOLUTIONS_MS.items():
        assert derived(pair, resolution) == wanted(pair, length_ms), resolution


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


def test_a_dry_run_writes_nothing(pair: StormPair, spark: SparkSession) -> None:
    before = len(pair.chunk_records())
    told = run_job(pair, spark, DownsampleOptions(dry_run=True, tasks=8))
    assert told.windows_stale == len(pair.storm.parts)
    assert len(pair.chunk_records()) == before
    assert read_downsampled(pair.log) == {}


def test_windows_shorter_than_a_resolution_are_refused(pair: StormPair, spark: SparkSession) -> None:
    with pytest.raises(ConfigMismatch, match="no multiple of 5m"):
        downsample(spark, pair.places, MetaSettings(partitions=3, time_set=DEMO), OPTIONS)


def test_without_a_loader_no_downsampled_span_is_recorded(pair: StormPair, spark: SparkSession) -> None:
    impatient = DownsampleOptions(loader_timeout_ms=500, tasks=8)
    with pytest.raises(Unavailable) as refused:
        run_job(pair, spark, impatient)
    assert refused.value.reason == "loader_behind"
    assert read_downsampled(pair.log) == {}
