"""merge-late: fragments become one a chunk, and no answer changes, whatever happens on the way."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.result import MergeLatePlan, MergeLateResult
from support.data.late_storm import Again, LateStorm, PackWindow, assert_reads
from support.servers.histories import META, HistoryFactory
from support.servers.loaders import is_loaded
from support.servers.logs import LogFactory, wait_until
from support.servers.querier_node import QuerierNode
from support.spark.storm_pair import StormPair, assert_answers
from tsdb.codec.chunk.key import Kind
from tsdb.history.interface import ChunkStore
from tsdb.model.errors import Unavailable

NOW = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, loader_timeout_ms=120_000, tasks=8)
HOUR_MS = 3600 * 1000


def run_job(pair: StormPair, spark: SparkSession, options: MergeLateOptions = NOW) -> MergeLateResult:
    done = merge_late(spark, pair.places, META, options)
    assert isinstance(done, MergeLateResult)
    return done


def plan_of_job(pair: StormPair, spark: SparkSession, options: MergeLateOptions) -> MergeLatePlan:
    plan = merge_late(spark, pair.places, META, options)
    assert isinstance(plan, MergeLatePlan)
    return plan


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[StormPair]:
    with (
        LogFactory(f"sqlite:///{tmp_path}/log.db", "") as log,
        HistoryFactory(f"sqlite:///{tmp_path}/history.db") as history,
    ):
        history.create()
        yield StormPair(log, history)


@pytest.fixture(params=["embedded", "real"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StormPair]:
    if request.param == "embedded":
        yield request.getfixturevalue("embedded")
        return
    broker, node = request.getfixturevalue("kafka"), request.getfixturevalue("cassandra")
    with (
        LogFactory(f"kafka://{broker.bootstrap}", f"{tmp_path.name}.") as log,
        HistoryFactory(f"cassandra://{node.host}:{node.port}/merge_late") as history,
    ):
        history.create()
        yield StormPair(log, history)


def test_two_runs_leave_one_fragment_a_chunk_and_every_answer_as_it_was(pair: StormPair, spark: SparkSession) -> None:
    pair.filled()
    wanted, chunks = pair.storm.wanted, len(pair.storm.parts)
    noise = LateStorm(packs=3, late=0, name="noise", partitions=META.partitions)
    noise.write(pair.log)
    orders = itertools.count(1_000)
    reading = Again(lambda: answered_reads(pair.history, wanted))
    with pair.loading(), pair.querying() as querier, reading, Again(lambda: answered(querier, pair.storm)) as polling:
        with Again(lambda: noise.write_late(pair.log, next(orders)), every_s=0.25):
            first = run_job(pair, spark)
            second = run_job(pair, spark, NOW)
        assert_answers(querier, pair.storm)
    assert polling.times
    assert reading.times
    assert first.ok, first
    assert second.ok, second
    assert first.before.most_of_a_chunk >= 11
    assert first.rows_deleted == 0
    assert first.folded >= chunks
    assert second.rows_deleted >= 11 * chunks
    assert {len(fragments) for fragments in pair.left().values()} == {1}
    assert {kind for fragments in pair.left().values() for kind, _ in fragments} == {Kind.FOLDED}
    with pair.loading():
        wait_until(lambda: is_loaded(pair.log))
    assert_reads(pair.history, wanted)
    assert_reads(pair.history, noise.wanted)


def answered_reads(history: ChunkStore, wanted: Mapping[PackWindow, object]) -> None:
    """Answers are right; a delayed server may refuse."""
    with contextlib.suppress(Unavailable):
        assert_reads(history, wanted)


def answered(querier: QuerierNode, storm: LateStorm) -> None:
    """Check the answers of a querier, if it is available."""
    with contextlib.suppress(Unavailable):
        assert_answers(querier, storm)
