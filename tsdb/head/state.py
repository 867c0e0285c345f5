"""What a head says of itself: its state at a moment, and what one apply or one round of maintenance did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hole:
    """A named loss of this partition: samples of [start_ms, end_ms) may be missing. pack_id 0: not of one pack."""

    start_ms: int
    end_ms: int
    reason: str
    record_offset: int
    pack_id: int = 0


@dataclass(frozen=True, slots=True)
class HeadState:
    """One moment of a head.

    since_offset: everything in the log from here on is held, whatever its timestamp. coverage_start_ms: sample time
    from here on is complete. applied_offset, watermark_ms: None before the first record. from_start: the whole log,
    never trimmed, is held.
    """

    since_offset: int
    coverage_start_ms: int
    watermark_ms: int | None
    applied_offset: int | None
    next_offset: int
    from_start: bool
    holes: tuple[Hole, ...]

    def through(self, later: HeadState) -> HeadState:
        """Of samples gathered after this moment and before `later`: never more than both say.

        Applied as before, for what came while they were gathered may be there in part; coverage and holes as after.
        The same object where nothing moved: what is made of a state is then made once.
        """
        if later is self:
            return self
        return HeadState(
            since_offset=later.since_offset,
            coverage_start_ms=later.coverage_start_ms,
            watermark_ms=self.watermark_ms,
            applied_offset=self.applied_offset,
            next_offset=self.next_offset,
            from_start=later.from_start,
            holes=later.holes,
        )


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """How much a head holds. Summed when asked, which an answer to a read does not pay for.

    samples: held in all, replaced ones not taken out before their slice is sealed. bytes: slices, late list, label
    index, caches; index_bytes: of the label index. late: samples in the late list. slices: held sealed; sealed_samples
    and sealed_bytes are theirs.
    """

    series: int
    samples: int
    bytes: int
    index_bytes: int
    late: int
    slices: int
    sealed_samples: int
    sealed_bytes: int


@dataclass(slots=True)
class Applied:
    """What one batch did. samples: visible now, the late ones among them; ignored_ahead: too far in the future."""

    records: int = 0
    samples: int = 0
    late: int = 0
    ignored_ahead: int = 0
    unknown_samples: int = 0
    holes: int = 0


@dataclass(slots=True)
class Maintained:
    """What one round of maintenance did: slices sealed, merged (counted before), dropped; late samples folded."""

    sealed: int = 0
    merged: int = 0
    folded: int = 0
    dropped: int = 0
    forgotten_series: int = 0
