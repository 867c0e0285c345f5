"""Rules of downsample: what is stale, what a dry run reports, and when a span is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.result import DownsampleResult
from spark_backfill.worker_log import close_worker_log
from support.servers.histories import META
from support.servers.loaders import is_loaded
from support.servers.logs import wait_until
from support.spark.derived import derived, filled, wanted
from support.spark.local_session import local_session
from support.spark.storm_pair import StormPair
from tsdb.log.downsampled import read_downsampled
from tsdb.model.errors import ConfigMismatch, Unavailable
from tsdb.model.meta import MetaSettings
from tsdb.model.resolution import RESOLUTIONS_MS
from tsdb.model.time_set import DEMO

OPTIONS = DownsampleOptions(loader_timeout_ms=120_000, tasks=8)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[StormPair]:
    with filled(f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db") as made:
        yield made
    close_worker_log()


def run_job(pair: StormPair, options: DownsampleOptions = OPTIONS) -> DownsampleResult:
    return downsample(local_session(), pair.places, META, options)


def test_a_fold_of_the_source_makes_nothing_stale(pair: StormPair) -> None:
    fold = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, loader_timeout_ms=120_000, tasks=8)
    with pair.loading():
        run_job(pair)
        merge_late(local_session(), pair.places, META, fold)
        merge_late(local_session(), pair.places, META, fold)
        assert run_job(pair).windows_stale == 0
        pair.late()
        wait_until(lambda: is_loaded(pair.log))
        merge_late(local_session(), pair.places, META, fold)
        merge_late(local_session(), pair.places, META, fold)
        folded = run_job(pair)
        assert run_job(pair).windows_stale == 0
    assert folded.windows_stale == len(pair.storm.parts), "what was folded meanwhile still counts as new"
    for resolution, length_ms in RESOLUTIONS_MS.items():
        assert derived(pair, resolution) == wanted(pair, length_ms), resolution


def test_a_dry_run_writes_nothing(pair: StormPair) -> None:
    before = len(pair.chunk_records())
    told = run_job(pair, DownsampleOptions(dry_run=True, tasks=8))
    assert told.windows_stale == len(pair.storm.parts)
    assert len(pair.chunk_records()) == before
    assert read_downsampled(pair.log) == {}


def test_windows_shorter_than_a_resolution_are_refused(pair: StormPair) -> None:
    with pytest.raises(ConfigMismatch, match="no multiple of 5m"):
        downsample(local_session(), pair.places, MetaSettings(partitions=3, time_set=DEMO), OPTIONS)


def test_without_a_loader_no_downsampled_span_is_recorded(pair: StormPair) -> None:
    impatient = DownsampleOptions(loader_timeout_ms=500, tasks=8)
    with pytest.raises(Unavailable) as refused:
        run_job(pair, impatient)
    assert refused.value.reason == "loader_behind"
    assert read_downsampled(pair.log) == {}
