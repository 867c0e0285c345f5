"""A query whose planner does not connect in time on a busy machine is started again; other failures end the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.pipeline import STARTS_MAX, Pipeline, starts_again_total
from support.servers.logs import LogFactory
from support.spark.pipelines import pipeline_options
from support.spark.sample_streams import make_log
from support.spark.spark import places
from tsdb.chunks.progress import Progress
from tsdb.model.clock import SystemClock
from tsdb.model.errors import TsdbError
from tsdb.ops.metrics import total

LATE = "org.apache.spark.SparkException: Python worker failed to connect back."
BROKEN = "org.apache.spark.SparkException: no space left"


class EndedQuery:
    """A query that has done all its work, or that Spark has failed with this text."""

    isActive = False  # Spark's name
    lastProgress = None  # Spark's name

    def __init__(self, failure: str) -> None:
        self._failure = failure

    def stop(self) -> None:
        """No effect: the query has ended."""

    def exception(self) -> PySparkException | None:
        return PySparkException(self._failure) if self._failure else None


class Starts(Pipeline):
    """Its queries end at once, each with the next of `failures`; "" is a success. The failure of a start comes from the
    query, as when Spark plans its first batch."""

    failures: Iterator[str]
    count = 0

    def _begin(self, checkpoint: str, committed: Mapping[int, Progress]) -> Any:
        self.count += 1
        return EndedQuery(next(self.failures))


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Starts, GroupMembership]]:
    monkeypatch.setattr("spark_backfill.pipeline.pipeline.SIGNAL_WITHIN_S", 0.01)  # No test here sends one.
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        log, clock = make_log(logs), SystemClock()
        options = pipeline_options(log, places(logs), tmp_path / "checkpoint", trigger_s=1.0)
        yield Starts(cast(Any, None), log, options, clock), GroupMembership(log, clock)


def test_a_late_planner_is_started_again(pipeline: tuple[Starts, GroupMembership]) -> None:
    starts, membership = pipeline
    before = total(starts_again_total)
    starts.failures = iter([LATE, LATE, ""])
    starts.run(membership)
    assert starts.count == 3
    assert total(starts_again_total) - before == 2


@pytest.mark.parametrize(
    ("failures", "reason", "count"),
    [
        ([LATE] * STARTS_MAX, "worker_late", STARTS_MAX),
        ([BROKEN], "spark_failed", 1),
        ([LATE, BROKEN], "spark_failed", 2),
    ],
)
def test_other_failures_and_too_many_late_starts_end_the_run(
    pipeline: tuple[Starts, GroupMembership], failures: list[str], reason: str, count: int
) -> None:
    starts, membership = pipeline
    starts.failures = iter(failures)
    with pytest.raises(TsdbError) as failed:
        starts.run(membership)
    assert failed.value.reason == reason
    assert starts.count == count
