"""Profiles: how often each action comes in a schedule, and how likely faults are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from support.simulation.log import LogFaults

FAULTS = LogFaults(lost_ack=0.04, refused=0.04, late=0.02, held=0.3, held_samples=0.4, gap=0.1, back_ms=600)

WEIGHTS: Mapping[str, int] = {
    "write": 100,
    "advance": 72,
    "land": 6,
    "gateway_restart": 3,
    "store_step": 56,
    "store_maintain": 28,
    "store_start": 10,
    "store_kill": 5,
    "store_snapshot": 8,
    "store_restart": 6,
    "chunker_step": 64,
    "chunker_replace": 4,
    "chunker_kill": 3,
    "zombie_step": 12,
    "loader_step": 64,
    "loader_replace": 4,
    "loader_kill": 3,
    "querier_restart": 2,
    "trim": 5,
    "compact": 8,
    "forget_commits": 2,
    "empty_history": 1,
    "rebuild": 4,
    "import": 6,
    "fold": 10,
    "read": 36,
    "read_stores": 8,
    "promql": 16,
    "listings": 10,
    "watch": 8,
}


@dataclass(frozen=True)
class Profile:
    """weights: of actions; steps: of a schedule. new_series: share of writes that bring a series nobody knows.

    series_share: as SimulatedHistory has it. failing: of statements and commits. busy: how likely a component moves in
    the middle of a read. edge_starts: share of stores that start right behind what is loaded; shallow: of those whose
    memory begins within a window that is open. edges: share of times that are the first or last of a range: of samples
    in slices and windows, of reads at coverage and steps. after: share of reads with the tokens of a write. checks: of
    the moments at which a read checks whether to go on. tight: of stores with little memory. lossy: trims may take what
    nobody has read. moves: actions that may come in the middle of a read, up to moves_max of them at each of
    its moments, which are kinds of history reads and of store reads; none: at all of them.
    """

    name: str = "all"
    steps: int = 130
    weights: Mapping[str, int] = field(default_factory=lambda: dict(WEIGHTS))
    faults: LogFaults = FAULTS
    new_series: float = 0.1
    series_share: float = 0.5
    failing: float = 0.05
    busy: float = 0.25
    edge_starts: float = 0.5
    shallow: float = 0.15
    edges: float = 0.1
    after: float = 0.3
    checks: float = 0.3
    tight: float = 0.0
    lossy: bool = False
    moves: tuple[str, ...] = ("store_step", "store_maintain", "chunker_step", "loader_step", "loader_step")
    moves_max: int = 4
    moments: tuple[str, ...] = ()
    partitions: tuple[int, ...] = (1, 1, 2)
    series: int = 8

    def more(self, name: str, **weights: int) -> Profile:
        """The same with other weights for some actions."""
        return replace(self, name=name, weights={**self.weights, **weights})


ALL = Profile()
# One kind of read, between whole steps of stores: the other rules need many of its reads.
SELECTS = replace(ALL.more("selects", promql=0, listings=0, watch=0), edges=0.0, after=0.0, checks=0.0)
LOSSY = replace(SELECTS.more("lossy", trim=20, repair=10, chunker_kill=8), lossy=True)
# One damaged record is a hole over all that a sender may send: few reads after it are answered in full.
DAMAGED = SELECTS.more("damaged", damage_record=2, store_snapshot=12, store_restart=10, read=60)
# Few of its series are written again, and memory is short, so that history is read without their announcements.
FORGOTTEN = replace(
    ALL.more("forgotten", lose_announcements=10, store_start=20, store_kill=15, read=80, advance=100),
    series=4,
    shallow=0.5,
    steps=160,
)
BACKUPS = replace(
    ALL.more("backups", backup=16, restore=8, loader_step=110, compact=2, empty_history=2, read=60, **{"import": 20}),
    steps=160,
    failing=0.02,
)
TIGHT = replace(ALL.more("tight", write=160, store_start=20, store_kill=16, store_maintain=40), tight=0.8)
DEAD_LETTERS = ALL.more(
    "dead letters", damage_chunks=8, chunker_step=40, loader_step=110, read=60, advance=100, rebuild=8
)
DOWNSAMPLED = ALL.more(
    "downsampled",
    chunker_step=100,
    loader_step=120,
    downsample=10,
    read_downsampled=60,
    querier_restart=12,
    **{"import": 20},
)
