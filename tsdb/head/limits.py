"""Limits of one head: memory marks, and the bounds of its caches, rings and answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """The bounds of one partition's head, and what happens at each.

    memory_soft_bytes: above it slices are sealed and dropped earlier than hold requires. memory_hard_bytes: above it
    nothing is applied: Overloaded (memory_hard). ring_samples_max: newest samples kept for Watch; an older position is
    OutOfCoverage there. holes_max: more holes become one wide hole per reason. pack_cache_refs_max: refs kept by the
    cache of packs, which is emptied at the bound. fold_entries_min: an interval with fewer late samples keeps them in
    the late list, where every read merges them. fold_step: more new late samples than this start a fold at once.

    """

    memory_soft_bytes: int = 6 << 30
    memory_hard_bytes: int = 8 << 30
    ring_samples_max: int = 65_536
    holes_max: int = 256
    pack_cache_refs_max: int = 16 << 20
    fold_entries_min: int = 256
    fold_step: int = 131_072
