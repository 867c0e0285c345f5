"""Horizons: progress of the chunk stage and of history, so that keys which are not due yet are not reported missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from chunker.takeover import known_progress
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import PartitionRange
from spark_backfill.jobs.verify.findings import Horizon
from tsdb.chunks.engine import GROUP_ID
from tsdb.history.loader.loader import GROUP
from tsdb.log.interface import CHUNKS, METRICS, Log
from tsdb.model.errors import InvalidRequest, Unavailable

SHOWN = 5


def stage_horizons(log: Log, found: Sequence[PartitionRange], end_ms: int) -> dict[int, Horizon]:
    """Progress of the chunk stage by partition, without history.

    Raises Unavailable (not_started), InvalidRequest (too_recent) when the chunk stage has not emitted all windows that
    end by end_ms, and the errors of decode_commit.
    """
    with log.group(GROUP_ID) as group:
        commits = group.committed([(METRICS, one.partition) for one in found])
    horizons: dict[int, Horizon] = {}
    for one in found:
        _, progress = known_progress(log, one.partition, commits[METRICS, one.partition])
        if progress is None:
            raise Unavailable(
                f"the chunk stage has never run on partition {one.partition}: there is nothing to verify",
                reason="not_started",
            )
        if progress.emitted_through_ms < end_ms:
            raise InvalidRequest(
                f"windows up to {end_ms} ms are too recent: the chunk stage of partition {one.partition} has emitted"
                f" those that end by {progress.emitted_through_ms} ms",
                reason="too_recent",
            )
        first_base_ms = max(one.first_base_ms, progress.whole_from_ms)
        horizons[one.partition] = Horizon(progress.position, progress.emitted_through_ms, first_base_ms)
    return horizons


def with_history(log: Log, build: BuildOptions, horizons: Mapping[int, Horizon]) -> dict[int, Horizon]:
    """The same horizons, with the progress of history. Raises Unavailable (not_loaded), and the errors of history."""
    with log.group(GROUP) as group:
        commits = group.committed([(CHUNKS, number) for number in horizons])
    with build.places.open_history() as history:
        loaded = history.loaded(build.topic_id)
    missing = sorted(horizons.keys() - loaded.keys())
    if missing:
        raise Unavailable(
            f"history has no loaded position of {len(missing)} partition(s), {missing[:SHOWN]}: run a loader first",
            reason="not_loaded",
        )
    found: dict[int, Horizon] = {}
    for number, horizon in horizons.items():
        commit = commits[CHUNKS, number]
        found[number] = replace(
            horizon,
            loaded_position=loaded[number].position,
            loaded_through_ms=loaded[number].emitted_through_ms,
            loader_offset=commit.next_offset if commit else 0,
        )
    return found
