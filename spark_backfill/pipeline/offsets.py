"""Stream offsets: the state of the planner after a batch, and the work of that batch. Pure; JSON in the checkpoint.

Everything that a batch does follows from the offset at its end, so a batch that is run again does the same. Equal
offsets are equal JSON text: Spark compares that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_backfill.building.items import BaseItem, Item, LateItem
from tsdb.chunks.progress import Progress
from tsdb.model.errors import CorruptData, UnknownVersion

VERSION = 1

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """progress: once the batch that ended here is done. bases: windows that it builds, as [start_ms, end_ms); late: the
    stretches of offsets that it scans."""

    progress: Progress
    bases: tuple[Span, ...] = ()
    late: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """life: how often a query was begun on this checkpoint. partitions: all of the log's, by number; none before the
    first batch."""

    topic_id: str = ""
    life: int = 0
    partitions: tuple[PartitionOffset, ...] = ()

    def items(self) -> Iterator[Item]:
        """The work of the batch that ended here; what takes longest first."""
        for number, partition in enumerate(self.partitions):
            for start_ms, end_ms in partition.bases:
                yield BaseItem(number, start_ms, end_ms)
        for number, partition in enumerate(self.partitions):
            for first_offset, end_offset in partition.late:
                yield LateItem(number, first_offset, end_offset)

    @property
    def progress(self) -> dict[int, Progress]:
        """By partition, once the batch that ended here is done."""
        return {number: partition.progress for number, partition in enumerate(self.partitions)}

    def as_json(self) -> dict[str, Any]:
        """As Spark keeps it; `offset_of` makes the same of it."""
        return {
            "version": VERSION,
            "topic_id": self.topic_id,
            "life": self.life,
            "partitions": [_partition_json(partition) for partition in self.partitions],
        }


def offset_of(data: Mapping[str, Any]) -> StreamOffset:
    """Raises UnknownVersion, CorruptData (checkpoint) for what is no offset of ours."""
    if data.get("version") != VERSION:
        raise UnknownVersion(
            f"the checkpoint is of version {data.get('version')!r}; this process knows {VERSION}", reason="checkpoint"
        )
    try:
        partitions = tuple(_partition_of(partition) for partition in data["partitions"])
        return StreamOffset(str(data["topic_id"]), int(data["life"]), partitions)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"the checkpoint has an offset that is none: {error!r}", reason="checkpoint") from error


def adopted(offset: StreamOffset, topic_id: str, found: Mapping[int, Progress]) -> StreamOffset:
    """A further life: no work, and what either this checkpoint or the group's commits say is done counts as done.

    Both only say what is in `chunks`, whoever wrote it, so the higher stands.
    """
    before = offset.progress
    partitions = tuple(
        PartitionOffset(_higher(found[number], before.get(number, found[number]))) for number in sorted(found)
    )
    return StreamOffset(topic_id, offset.life + 1, partitions)


def is_done(progress: Progress, by: Progress) -> bool:
    """Whether `by` says at least as much."""
    return progress.position <= by.position and progress.emitted_through_ms <= by.emitted_through_ms


def _higher(a: Progress, b: Progress) -> Progress:
    return replace(
        a,
        position=max(a.position, b.position),
        emitted_through_ms=max(a.emitted_through_ms, b.emitted_through_ms),
        whole_from_ms=max(a.whole_from_ms, b.whole_from_ms),
    )


def _partition_json(partition: PartitionOffset) -> dict[str, Any]:
    progress = partition.progress
    return {
        "position": progress.position,
        "emitted_through_ms": progress.emitted_through_ms,
        "whole_from_ms": progress.whole_from_ms,
        "bases": [list(span) for span in partition.bases],
        "late": [list(span) for span in partition.late],
    }


def _partition_of(data: Mapping[str, Any]) -> PartitionOffset:
    progress = Progress(int(data["position"]), int(data["emitted_through_ms"]), int(data["whole_from_ms"]))
    return PartitionOffset(progress, _spans(data["bases"]), _spans(data["late"]))


def _spans(data: Any) -> tuple[Span, ...]:
    return tuple((int(first), int(end)) for first, end in data)
