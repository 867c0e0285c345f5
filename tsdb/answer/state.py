"""Memory state: what a store holds of one partition, as each answer states it, and checks of a range against it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tsdb.codec.chunk.marker import HoleRecord
from tsdb.model.errors import HoleInRange, OutOfCoverage
from tsdb.model.lag import LAG_UNKNOWN
from tsdb.model.times import time_text

LOSSES_MAX = 100  # Losses that one answer names. Each corrupt chunk of history is a loss.


@dataclass(frozen=True, slots=True)
class MemoryState:
    """One partition in the memory of a store. The fields are those of PartitionState in proto/tsdb/v1/common.proto.

    applied_offset, watermark_ms: None before the first record. lag_records, lag_ms: LAG_UNKNOWN while unknown. holes:
    in the answer of a querier also the holes of history. series, samples, bytes: 0 in all answers but that of Coverage.
    """

    partition: int
    topic_id: str = ""
    since_offset: int = 0
    coverage_start_ms: int = 0
    applied_offset: int | None = None
    next_offset: int = 0
    high_watermark: int = 0
    lag_records: int = LAG_UNKNOWN
    lag_ms: int = LAG_UNKNOWN
    from_start: bool = False
    ready: bool = False
    reason: str = ""
    holes: tuple[HoleRecord, ...] = ()
    watermark_ms: int | None = None
    series: int = 0
    samples: int = 0
    bytes: int = 0

    def reaches(self, start_ms: int) -> bool:
        """Whether memory alone holds everything from start_ms on."""
        return self.from_start or self.coverage_start_ms <= start_ms

    def check_coverage(self, start_ms: int) -> None:
        """Raises OutOfCoverage when memory does not reach start_ms."""
        if not self.reaches(start_ms):
            raise OutOfCoverage(
                f"partition {self.partition} is complete from {self.coverage_start_ms} ms on; requested: {start_ms} ms",
                partition=self.partition,
                coverage_start_ms=self.coverage_start_ms,
                asked_start_ms=start_ms,
            )

    def holes_in(self, start_ms: int, end_ms: int) -> Iterator[HoleRecord]:
        """The holes that touch [start_ms, end_ms)."""
        for hole in self.holes:
            if hole.start_ms < end_ms and hole.end_ms > start_ms:
                yield hole


def hole_error(hole: HoleRecord) -> HoleInRange:
    """The refusal of a read that a hole of memory touches."""
    return HoleInRange(
        f"samples of partition {hole.partition} in [{hole.start_ms}, {hole.end_ms}) may be lost:"
        f" {hole.reason}, record_offset {hole.record_offset}; allow_holes answers without them",
        partition=hole.partition,
        hole_reason=hole.reason,
        hole_start_ms=hole.start_ms,
        hole_end_ms=hole.end_ms,
    )


def losses(
    warnings: Iterable[str], states: Iterable[MemoryState], start_ms: int, end_ms: int, *, allow_holes: bool
) -> tuple[str, ...]:
    """Sentences that name the samples that an answer may lack, where the read accepts that: the warnings of stores
    about their lag and, with allow_holes, one for each hole in [start_ms, end_ms).

    states: the states of all partitions in the answer. Stores and history may state the same hole: it is named once.
    Without allow_holes all holes are accepted in history, and a read does not mention those.
    """
    found = list(warnings)
    if allow_holes:
        ordered = sorted(states, key=lambda state: state.partition)
        found += dict.fromkeys(_sentence(hole) for state in ordered for hole in state.holes_in(start_ms, end_ms))
    if len(found) > LOSSES_MAX:
        found[LOSSES_MAX:] = [f"{len(found) - LOSSES_MAX} more losses are not listed"]
    return tuple(found)


def _sentence(hole: HoleRecord) -> str:
    partition = f"partition {hole.partition}"
    lost_from = f"pack {hole.pack_id:016x} of {partition}" if hole.pack_id else partition
    return (
        f"samples of {lost_from} from {time_text(hole.start_ms)} until {time_text(hole.end_ms)} may be lost:"
        f" {hole.reason}, record_offset {hole.record_offset}"
    )
