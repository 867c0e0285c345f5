"""Repair by hand: finds the problem that keeps the chunk stage of a partition from beginning, and repairs it.

`diagnose` changes nothing. `repair` writes the hole, the progress marker and the commit from which the chunk stage
begins next. It must be the only member of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chunker.takeover import check_end, ensure_not_empty, known_progress, log_facts
from tsdb.chunks.progress import Progress, encode_progress
from tsdb.chunks.records import hole_record
from tsdb.chunks.resume import check_gap, first_progress, gap_hole, progress_after_gap
from tsdb.codec.chunk.key import ProgressKey, encode_key
from tsdb.codec.chunk.marker import HoleRecord, encode_progress_marker
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Group, Log, Position
from tsdb.log.lone_member import join_alone
from tsdb.model.clock import Clock
from tsdb.model.errors import CorruptData, LostOffsets, TsdbError, UnknownVersion, WrongTopic
from tsdb.model.time_set import TimeSet

GAP, REPLAY = "accept-gap", "accept-replay"


@dataclass(frozen=True, slots=True)
class ResumeProblem:
    """The reason why the stage of a partition cannot begin. needs: the losses that an operator has to accept (GAP,
    REPLAY), in this order."""

    partition: int
    error: TsdbError
    needs: tuple[str, ...]
    hole: HoleRecord | None


def diagnose(log: Log, partition: int, commit: Position | None, times: TimeSet) -> ResumeProblem | None:
    """The problem of a partition; None when the chunk stage can begin. Raises Unavailable."""
    try:
        _, progress = known_progress(log, partition, commit)
    except (CorruptData, UnknownVersion, WrongTopic) as error:
        behind = diagnose(log, partition, None, times)
        return ResumeProblem(
            partition, error, (REPLAY, *(behind.needs if behind else ())), behind.hole if behind else None
        )
    if progress is None:
        return None
    facts = log_facts(log, partition, progress, times)
    try:
        check_end(progress, facts, partition)
    except LostOffsets as error:
        return ResumeProblem(partition, error, (REPLAY,), None)
    try:
        check_gap(progress, facts, partition, times)
    except LostOffsets as error:
        return ResumeProblem(partition, error, (GAP,), gap_hole(progress, facts, partition, times))
    return None


def repair(
    log: Log, group: Group, problems: Sequence[ResumeProblem], times: TimeSet, clock: Clock
) -> dict[int, Progress]:
    """Accept and repair all these problems. Returns the progress from which each partition then begins. Raises
    Unavailable (group_in_use)."""
    with group:
        join_alone(log, group, [METRICS])
        return {problem.partition: _repair(log, group, problem, times, clock) for problem in problems}


def _repair(log: Log, group: Group, problem: ResumeProblem, times: TimeSet, clock: Clock) -> Progress:
    partition = problem.partition
    ensure_not_empty(log, partition, clock)
    progress, hole = _accepted(log, group, problem, times)
    if hole is not None:
        record = hole_record(hole)
        log.append_sync(CHUNKS, partition, record.value, key=record.key)
    topic_id = log.topic_id(METRICS)
    series_end = log.watermarks(SERIES, [partition])[partition].high
    marker = progress.marker(topic_id, series_end)
    log.append_sync(CHUNKS, partition, encode_progress_marker(marker), key=encode_key(ProgressKey()))
    group.commit({(METRICS, partition): Position(progress.position, encode_progress(progress, topic_id))})
    return progress


def _accepted(log: Log, group: Group, problem: ResumeProblem, times: TimeSet) -> tuple[Progress, HoleRecord | None]:
    partition = problem.partition
    commit = None if REPLAY in problem.needs else group.committed([(METRICS, partition)])[METRICS, partition]
    _, progress = known_progress(log, partition, commit)
    if progress is None:
        facts = log_facts(log, partition, Progress(0, 0), times)
        assert facts.first_broker_ms is not None, "it has a tick"
        return first_progress(facts.low, facts.first_broker_ms, partition, times)
    if GAP not in problem.needs:
        return progress, None
    facts = log_facts(log, partition, progress, times)
    return progress_after_gap(progress, facts, times), gap_hole(progress, facts, partition, times)
