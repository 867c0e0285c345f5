"""Reads the state of the chunk stage from its commits, and lists its repairs, as rows for `tsdb chunks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from chunker.repair import ResumeProblem, diagnose, repair
from chunker.takeover import known_progress
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.progress import Progress
from tsdb.codec.chunk.marker import ALWAYS_WHOLE_MS
from tsdb.log.interface import METRICS, Log, Position
from tsdb.model.clock import SystemClock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.time_set import TimeSet


def stage_rows(log: Log, partitions: Sequence[int], times: TimeSet) -> Iterator[dict[str, object]]:
    """One row for each partition, with None in the fields of progress before the first commit."""
    commits = _commits(log, partitions)
    marks = log.watermarks(METRICS, partitions)
    for partition in partitions:
        progress = _progress(log, partition, commits[partition])
        problem = diagnose(log, partition, commits[partition], times)
        whole_from_ms = progress.whole_from_ms if progress else ALWAYS_WHOLE_MS
        yield {
            "partition": partition,
            "position": progress.position if progress else None,
            "lag": marks[partition].high - progress.position if progress else None,
            "emitted_through_ms": progress.emitted_through_ms if progress else None,
            "whole_from_ms": None if whole_from_ms == ALWAYS_WHOLE_MS else whole_from_ms,
            "trouble": problem.error.reason if problem else None,
        }


def resume_rows(log: Log, times: TimeSet, accepted: Set[str]) -> list[dict[str, object]]:
    """One row for each partition that cannot begin. Partitions whose needs are all accepted are repaired."""
    partitions = range(log.partitions(METRICS))
    commits = _commits(log, partitions)
    problems = [problem for p in partitions if (problem := diagnose(log, p, commits[p], times)) is not None]
    todo = [problem for problem in problems if set(problem.needs) <= accepted]
    done = repair(log, log.group(GROUP_ID), todo, times, SystemClock()) if todo else {}
    return [_row(problem, problem.partition in done) for problem in problems]


def _row(problem: ResumeProblem, done: bool) -> dict[str, object]:
    return {
        "partition": problem.partition,
        "trouble": problem.error.message,
        "needs": ", ".join(problem.needs),
        "hole_start_ms": problem.hole.start_ms if problem.hole else None,
        "hole_end_ms": problem.hole.end_ms if problem.hole else None,
        "done": done,
    }


def _commits(log: Log, partitions: Sequence[int]) -> dict[int, Position | None]:
    with log.group(GROUP_ID) as group:
        found = group.committed([(METRICS, partition) for partition in partitions])
    return {partition: found[METRICS, partition] for partition in partitions}


def _progress(log: Log, partition: int, commit: Position | None) -> Progress | None:
    try:
        return known_progress(log, partition, commit)[1]
    except Unavailable:
        raise
    except TsdbError:
        return None  # `diagnose` gives the reason.
