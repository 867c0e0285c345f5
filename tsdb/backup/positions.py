"""Positions of loaders: read for a backup, set back by a restore, so that a loader goes on where the backup ends."""

from __future__ import annotations

from collections.abc import Mapping

from tsdb.backup.manifest import LoaderPosition
from tsdb.log.interface import CHUNKS, SERIES, Log, Position, TopicPartition
from tsdb.log.lone_member import lone_member
from tsdb.log.records import first_records
from tsdb.model.errors import Unavailable


def read_positions(log: Log, group_id: str, now_ms: int) -> dict[int, LoaderPosition]:
    """Positions by partition. now_ms: a lower bound of the broker time of later records."""
    partitions = range(log.partitions(CHUNKS))
    with log.group(group_id) as member:
        committed = member.committed([(topic, number) for topic in (CHUNKS, SERIES) for number in partitions])
    starts = {number: at.next_offset for number in partitions if (at := committed[CHUNKS, number]) is not None}
    marks = log.watermarks(CHUNKS, list(starts))
    waiting = {number: max(start, marks[number].low) for number, start in starts.items() if start < marks[number].high}
    firsts = first_records(log, CHUNKS, waiting)
    return {
        number: LoaderPosition(
            committed[CHUNKS, number],
            committed[SERIES, number],
            min(now_ms, first.broker_ms) if (first := firsts.get(number)) else now_ms,
        )
        for number in partitions
    }


def check_no_member(log: Log, group_id: str, role: str) -> None:
    """Raises Unavailable (group_in_use) while the group has a member."""
    members = log.members(group_id)
    if members:
        raise Unavailable(
            f"group {group_id} has {len(members)} members ({', '.join(sorted(members)[:3])}): stop every {role} first",
            reason="group_in_use",
        )


def set_positions(log: Log, group_id: str, positions: Mapping[TopicPartition, Position]) -> None:
    """Replace the loader's commits, durable on return. Raises Unavailable (group_in_use)."""
    with lone_member(log, group_id, [CHUNKS], {SERIES: CHUNKS}) as member:
        member.commit(positions)
