"""Stream offsets: the planner's state after a batch, and the work of that batch. Pure. The checkpoint has them as JSON.

The offset at the end of a batch determines its work, so a repeated batch does the same. Equal offsets give equal JSON
text, because Spark compares the texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from spark_backfill.building.items import BaseItem, Item, LateItem
from tsdb.chunks.progress import Progress
from tsdb.model.errors import CorruptData, UnknownVersion

VERSION = 1

Span = tuple[int, int]


class Base(NamedTuple):
    """Windows [start_ms, end_ms), and the range of offsets that is scanned for late samples in the same read."""

    start_ms: int
    end_ms: int
    late_first: int = 0
    late_end: int = 0


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """progress: the progress after the batch that ends here. bases: windows that it builds. late: ranges of offsets
    that it scans apart from them.
    """

    progress: Progress
    bases: tuple[Base, ...] = ()
    late: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineOffset:
    """life: number of queries begun on this checkpoint. partitions: one for each partition of the log, by number; empty
    before the first batch."""

    topic_id: str = ""
    life: int = 0
    partitions: tuple[PartitionOffset, ...] = ()

    def items(self) -> Iterator[Item]:
        """Work items of the batch that ends here: base items, which take longest, come first."""
        for number, partition in enumerate(self.partitions):
            for base in partition.bases:
                yield BaseItem(number, *base)
        for number, partition in enumerate(self.partitions):
            for first_offset, end_offset in partition.late:
                yield LateItem(number, first_offset, end_offset)

    @property
    def progress(self) -> dict[int, Progress]:
        """Progress by partition after the batch that ends here."""
        return {number: partition.progress for number, partition in enumerate(self.partitions)}

    def as_json(self) -> dict[str, Any]:
        """JSON for Spark's checkpoint, from which `offset_of` makes an equal value."""
        return {
            "version": VERSION,
            "topic_id": self.topic_id,
            "life": self.life,
            "partitions": [_partition_json(partition) for partition in self.partitions],
        }


def offset_of(data: Mapping[str, Any]) -> PipelineOffset:
    """Decode the offset from JSON of the checkpoint. Raises UnknownVersion and CorruptData, both with reason
    checkpoint."""
    if data.get("version") != VERSION:
        raise UnknownVersion(
            f"the checkpoint is of version {data.get('version')!r}; this process knows {VERSION}", reason="checkpoint"
        )
    try:
        partitions = tuple(_partition_of(partition) for partition in data["partitions"])
        return PipelineOffset(str(data["topic_id"]), int(data["life"]), partitions)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"the checkpoint has an invalid offset: {error!r}", reason="checkpoint") from error


def adopted(offset: PipelineOffset, topic_id: str, found: Mapping[int, Progress]) -> PipelineOffset:
    """The offset of a new query. It has no work, and in each partition the higher progress of checkpoint and group.

    Both state only that records are in `chunks`, and all engines write the same records, so the higher one is true.

    """
    before = offset.progress
    partitions = tuple(
        PartitionOffset(_higher(found[number], before.get(number, found[number]))) for number in sorted(found)
    )
    return PipelineOffset(topic_id, offset.life + 1, partitions)


def is_done(progress: Progress, by: Progress) -> bool:
    """Whether `by` is at least as far as `progress`, in position and in emitted windows."""
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
        "bases": [list(base) for base in partition.bases],
        "late": [list(span) for span in partition.late],
    }


def _partition_of(data: Mapping[str, Any]) -> PartitionOffset:
    progress = Progress(int(data["position"]), int(data["emitted_through_ms"]), int(data["whole_from_ms"]))
    bases = tuple(Base(*map(int, numbers)) for numbers in data["bases"])
    return PartitionOffset(progress, bases, tuple((int(first), int(end)) for first, end in data["late"]))
