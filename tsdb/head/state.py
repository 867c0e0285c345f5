"""Head state: a head at one moment, and the counts of one apply or one round of maintenance.

The limits of one head are its memory marks, and the bounds of its caches, rings and answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.model import defaults


@dataclass(frozen=True, slots=True)
class Hole:
    """A named loss of this partition: samples of [start_ms, end_ms) may be missing. pack_id 0: the loss is not of one
    pack."""

    start_ms: int
    end_ms: int
    reason: str
    record_offset: int
    pack_id: int = 0


@dataclass(frozen=True, slots=True)
class HeadState:
    """A head at one moment.

    since_offset: the head has everything in the log from here on, whatever its timestamp. coverage_start_ms: sample
    time from here on is complete. applied_offset, watermark_ms: None before the first record. from_start: the head has
    the whole log, which was never trimmed.
    """

    since_offset: int
    coverage_start_ms: int
    watermark_ms: int | None
    applied_offset: int | None
    next_offset: int
    from_start: bool
    holes: tuple[Hole, ...]

    def reaches(self, start_ms: int) -> bool:
        """Whether the head has everything from start_ms on."""
        return self.from_start or self.coverage_start_ms <= start_ms

    def through(self, later: HeadState) -> HeadState:
        """State of samples gathered between this moment and `later`. It claims only what both states claim.

        Applied offset and watermark are of this moment, because records applied during the gather may be there only in
        part. Coverage and holes are of `later`. Returns this object itself when nothing changed, so that a value
        derived from a state is made once.
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
    """Sizes of a head. They are summed on request, so that reads do not pay for it.

    samples: all samples in memory; replaced samples count until their slice is sealed. bytes: slices, late list, label
    index, caches; index_bytes: the bytes of the label index. late: samples in the late list. slices: sealed slices;
    sealed_samples and sealed_bytes are theirs.
    """

    series: int
    samples: int
    bytes: int
    index_bytes: int
    late: int
    slices: int
    sealed_samples: int
    sealed_bytes: int
    exemplars: int = 0


@dataclass(slots=True)
class Applied:
    """Counts of one batch. samples: visible now, including late ones. ignored_ahead: samples too far in the future."""

    records: int = 0
    samples: int = 0
    late: int = 0
    ignored_ahead: int = 0
    unknown_samples: int = 0
    holes: int = 0
    exemplars: int = 0


@dataclass(slots=True)
class Maintained:
    """Counts of one round of maintenance: slices sealed, merged (the inputs), dropped; late samples folded.

    more: whether the next round may find work although no record comes.
    """

    sealed: int = 0
    merged: int = 0
    folded: int = 0
    dropped: int = 0
    forgotten_series: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """The bounds of one partition's head, and what happens at each.

    memory_soft_bytes: above it slices are sealed and dropped earlier than hold requires. memory_hard_bytes: above it
    nothing is applied: Overloaded (memory_hard). ring_samples_max: newest samples kept for Watch; an older position is
    OutOfCoverage there. holes_max: more holes become one wide hole per reason. pack_cache_refs_max: refs kept by the
    cache of packs, which is emptied at the bound. fold_entries_min: an interval with fewer late samples keeps them in
    the late list, where every read merges them. fold_step: more new late samples than this start a fold at once.
    exemplars_series_max, exemplars_bytes_max: exemplars of one series, and bytes of those of all series; the oldest go.
    0 bytes: none are kept.
    """

    memory_soft_bytes: int = defaults.MEMORY_SOFT_BYTES
    memory_hard_bytes: int = defaults.MEMORY_HARD_BYTES
    ring_samples_max: int = defaults.WATCH_SAMPLES_MAX
    holes_max: int = 256
    pack_cache_refs_max: int = 16 << 20
    fold_entries_min: int = 256
    fold_step: int = 131_072
    exemplars_series_max: int = defaults.EXEMPLARS_SERIES_MAX
    exemplars_bytes_max: int = defaults.EXEMPLARS_BYTES_MAX
