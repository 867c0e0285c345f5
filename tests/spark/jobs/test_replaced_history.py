"""A job that reads history does not rely on rows that went away meanwhile: it fails, and the next run is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_backfill.jobs.downsample.job as downsampling
import spark_backfill.jobs.exports.job as exporting
from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.jobs.exports.job import ExportOptions, export
from spark_backfill.source.options import TimeSpan
from support.data.late_storm import EVER
from support.servers.histories import META
from support.servers.loaders import is_loaded
from support.servers.logs import wait_until
from support.spark.derived import derived, filled, wanted
from support.spark.storm_pair import StormPair
from tsdb.history.claims import ClaimsSnapshot
from tsdb.log.downsampled import read_downsampled
from tsdb.log.interface import METRICS
from tsdb.model.errors import Unavailable
from tsdb.model.resolution import RESOLUTIONS_MS

OPTIONS = DownsampleOptions(loader_timeout_ms=120_000, tasks=8)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[StormPair]:
    with filled(f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db") as made:
        yield made


def claims(pair: StormPair) -> ClaimsSnapshot:
    return ClaimsSnapshot.read(pair.history, pair.log.topic_id(METRICS))


def empty(pair: StormPair) -> None:
    pair.history_factory.empty()


def load_anew(pair: StormPair) -> None:
    """Empty the history; its running loader fills it again, so that its claims are those from before."""
    before = claims(pair)
    empty(pair)
    wait_until(lambda: (now := claims(pair)).loaded == before.loaded and now.anew.keys() == before.loaded.keys())


LATER = pytest.mark.soak  # Every run has each loss once.


def once_before(patch: pytest.MonkeyPatch, module: object, name: str, action: Callable[[], None]) -> None:
    """Do it once, before the function is called."""
    real, left = getattr(module, name), [action]

    def wrapped(*given: object) -> object:
        while left:
            left.pop()()
        return real(*given)

    patch.setattr(module, name, wrapped)


@pytest.mark.parametrize("lose", [pytest.param(empty, marks=LATER), load_anew])
def test_an_export_of_a_history_that_was_replaced_meanwhile_is_not_marked_as_complete(
    pair: StormPair, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[..., None]
) -> None:
    folder = tmp_path / "copy"
    options = ExportOptions(str(folder), span=TimeSpan(EVER.start_ms, EVER.end_ms), splits=2)
    with pair.loading():
        once_before(monkeypatch, exporting, "_read", lambda: lose(pair))
        with pytest.raises(Unavailable, match="what was read of it may lack rows") as refused:
            export(spark, pair.places, options)
        assert refused.value.reason == "history_replaced"
        assert not (folder / "_SUCCESS").exists()
        wait_until(lambda: len(claims(pair).loaded) == META.partitions)
        again = export(spark, pair.places, dataclasses.replace(options, overwrite=True))
    assert again.samples == sum(map(len, pair.storm.wanted.values()))
    assert (folder / "_SUCCESS").exists()


@pytest.mark.parametrize("lose", [empty, pytest.param(load_anew, marks=LATER)])
def test_a_span_that_was_derived_of_a_replaced_history_is_not_recorded(
    pair: StormPair, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, lose: Callable[..., None]
) -> None:
    with pair.loading():
        once_before(monkeypatch, downsampling, "source_packs", lambda: lose(pair))
        with pytest.raises(Unavailable, match="what was read of it may lack rows") as refused:
            downsample(spark, pair.places, META, OPTIONS)
        assert refused.value.reason == "history_replaced"
        assert read_downsampled(pair.log) == {}, "queriers would use samples that were derived of a part"
        wait_until(lambda: is_loaded(pair.log) and len(claims(pair).loaded) == META.partitions)
        assert downsample(spark, pair.places, META, OPTIONS).ok
    assert read_downsampled(pair.log).keys() == RESOLUTIONS_MS.keys()
    for resolution, length_ms in RESOLUTIONS_MS.items():
        assert derived(pair, resolution) == wanted(pair, length_ms), resolution
