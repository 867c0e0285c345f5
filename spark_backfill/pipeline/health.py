"""Health: reports the state of each partition of a running pipeline, for `/-/ready`."""

from __future__ import annotations

from chunker.stage_metrics import StagePlace
from spark_backfill.pipeline.pipeline import Pipeline
from tsdb.ops.health import PartitionHealth


def pipeline_health(running: Pipeline) -> dict[int, PartitionHealth]:
    """A partition is ready when the log's end is known. Lag never makes it unready: no reader depends on a pipeline."""
    commits = running.last_commit_ms
    return {place.partition: _health(place, commits.get(place.partition)) for place in running.places()}


def _health(place: StagePlace, last_commit_ms: int | None) -> PartitionHealth:
    progress = place.progress
    return PartitionHealth(
        place.ready,
        "" if place.ready else "log_unavailable",
        {
            "engine": "spark",
            "lag_records": place.lag_records,
            "windows_overdue": place.windows_overdue,
            "last_commit_ms": last_commit_ms,
            "position": progress.position if progress else None,
            "emitted_through_ms": progress.emitted_through_ms if progress else None,
        },
    )
