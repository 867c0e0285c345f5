"""Profiles: how often each action comes in a schedule, and how likely faults are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from support.simulation.details import DetailShares
from support.simulation.log import LogFaults

FAULTS = LogFaults(lost_ack=0.04, refused=0.04, late=0.02, held=0.3, held_samples=0.4, gap=0.1, back_ms=600)

DETAILS = DetailShares()

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
    """weights: the weights of actions; steps: the steps of a schedule. new_series: share of writes that bring a series
    nobody knows.

    series_share: see SimulatedHistory. failing: share of statements and commits that fail. busy: probability that a
    component moves in the middle of a read. edge_starts: share of stores that start right behind the loaded records;
    shallow: share of stores whose memory begins within an open window. edges: share of times at the first or last
    millisecond of a range, which for samples is a slice or a window, for reads coverage or a step. kinds: kinds of
    Selects, each as often as it is drawn. after: share of reads with the tokens of a write. checks: share of the checks
    for a canceled read at which other components move. tight: the share of stores with little memory. lossy: whether
    trims may remove records that no component has read. moves: actions that may come in the middle of a read, up to
    moves_max of them at each of its moments. moments: kinds of reads of history and of stores; empty: all kinds.
    details: shares of samples with histograms and start timestamps.
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
    kinds: tuple[str, ...] = ("raw", "raw", "columns", "steps", "last")
    after: float = 0.3
    checks: float = 0.3
    tight: float = 0.0
    lossy: bool = False
    moves: tuple[str, ...] = ("store_step", "store_maintain", "chunker_step", "loader_step", "loader_step")
    moves_max: int = 4
    moments: tuple[str, ...] = ()
    partitions: tuple[int, ...] = (1, 1, 2)
    series: int = 8
    details: DetailShares = DETAILS

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
# Downsampling and steps refuse histograms.
DOWNSAMPLED = replace(
    ALL.more(
        "downsampled",
        chunker_step=100,
        loader_step=120,
        downsample=10,
        read_downsampled=60,
        querier_restart=12,
        **{"import": 20},
    ),
    details=DetailShares(histograms=0.0),
)

# Profiles for the rules of one kind.

DENSE = DetailShares(worlds=1.0, starts=0.4, requests=0.8, histograms=0.8)
DETAILED = replace(ALL.more("detailed", write=160, read=80, store_snapshot=16, store_restart=12), details=DENSE)

STARTS = replace(SELECTS.more("starts", store_start=40, store_kill=30, read=80), edge_starts=0.9, shallow=0.1)
# Snapshots and waiting answers are off, because the rule needs a store that starts from a log with late samples.
PLAIN_STARTS = replace(
    STARTS.more("starts", store_snapshot=0, store_restart=0), faults=replace(FAULTS, held_samples=0.0)
)
FROM_ZERO = SELECTS.more("from zero", empty_history=12, rebuild=30, compact=30)
AGAIN = replace(
    SELECTS.more(
        "again",
        gateway_restart=60,
        compact=60,
        empty_history=20,
        loader_kill=15,
        loader_step=40,
        store_snapshot=0,
        store_restart=0,
    ),
    new_series=0.4,
    series_share=0.03,
    faults=replace(FAULTS, held_samples=0.0),  # The rules of this profile need many samples in short succession.
)
NEW_SERIES = replace(SELECTS.more("new series", loader_step=120), new_series=0.4, series_share=0.1)
BUSY = replace(
    SELECTS.more("busy", read=120, loader_step=12, store_start=30, store_kill=20),
    busy=0.8,
    edge_starts=0.7,
    moves=("chunker_step", "loader_step", "loader_step", "loader_step"),
)
SNAPSHOTS = SELECTS.more("snapshots", store_snapshot=40, store_restart=30, store_start=4, read=80)
SNAPSHOTS_OF_NEW_SERIES = replace(
    SELECTS.more("snapshots of new series", store_snapshot=40, store_restart=40, gateway_restart=10, read=60),
    new_series=0.5,
    series=4,
)
IMPORTS = SELECTS.more("imports", **{"import": 30})
FOLDS = replace(
    SELECTS.more("folds", fold=60, loader_step=120, read=80), busy=0.8, moves=("fold", "loader_step", "loader_step")
)
FOLDS_OF_DETAILS = replace(FOLDS, name="folds of details", details=DENSE)
# A whole fold, from its first row to the deletion of the covered rows, may happen during one read.
FOLDS_IN_READS = replace(
    SELECTS.more(
        "folds in reads",
        write=120,
        chunker_step=80,
        loader_step=80,
        store_step=30,
        store_maintain=8,
        read=8,
        fold=0,
        rebuild=0,
        trim=0,
        forget_commits=0,
        empty_history=0,
        **{"import": 0},
    ),
    steps=200,
    busy=1.0,
    moves=("fold", "fold", "fold", "loader_step"),
    moves_max=40,
    moments=("rows",),
    partitions=(1,),
    series=4,
    new_series=0.0,
)
NO_COMMITS = SELECTS.more("no commits", forget_commits=20, chunker_replace=20, zombie_step=40, trim=20)
# Zombies do nothing until the group's commits are lost; then they write from far behind.
SUSPENDED = replace(
    SELECTS.more(
        "suspended",
        advance=90,
        chunker_step=80,
        chunker_replace=8,
        zombie_step=0,
        forget_commits=3,
        trim=60,
        compact=0,
        empty_history=0,
        store_step=10,
        store_start=2,
        store_maintain=4,
        loader_step=10,
        fold=0,
        rebuild=0,
        read=4,
        read_stores=0,
        **{"import": 0},
    ),
    steps=250,
)
TAKE_OVERS = SELECTS.more("take-overs", chunker_replace=20, chunker_kill=10, zombie_step=40)

EDGES = replace(SELECTS.more("edges", read=90, store_start=20, store_kill=14), edges=0.6, edge_starts=0.8)
STEPS = replace(EDGES, name="steps", kinds=("steps",), details=DetailShares(histograms=0.0))
WRITES = replace(
    ALL.more("writes", write=220, land=12, read=4, promql=2, listings=2, watch=2, compact=2, fold=2),
    faults=replace(FAULTS, held_samples=0.8, refused=0.01, lost_ack=0.01),
    new_series=0.0,
    series=4,
)
# Stores of little depth drop slices all the time.
EDGES_OF_DROPS = replace(
    SELECTS.more(
        "edges of drops", read=100, advance=110, store_step=90, store_maintain=70, store_start=20, store_kill=16
    ),
    edges=0.6,
    shallow=0.8,
)
# Readers meet series that appear in the middle of their reads.
NEW_IN_READS = replace(
    ALL.more("new in reads", write=160, read=150, store_step=20, store_maintain=10, gateway_restart=10),
    new_series=0.6,
    series=4,
    busy=1.0,
    moves=("store_step",),
    moments=("check",),
)
IMPORTS_BETWEEN_READS = SELECTS.more("imports between reads", **{"import": 60}, loader_step=120)

QUERIES = replace(ALL.more("queries", promql=80, read=60, listings=0, watch=0, read_stores=0, store_step=30), edges=0.3)
LISTINGS = ALL.more("listings", promql=4, read=4, listings=80, watch=4, read_stores=0, store_start=16)
WATCHERS = ALL.more("watchers", promql=4, read=8, listings=4, watch=80, read_stores=0)
WATCHERS_OF_DETAILS = replace(WATCHERS.more("watchers of details", store_snapshot=30, store_restart=20), details=DENSE)

PROFILES = (
    *(ALL, ALL, ALL, LOSSY, STARTS, FROM_ZERO, AGAIN, NEW_SERIES),
    *(DAMAGED, FORGOTTEN, EDGES, EDGES_OF_DROPS, NEW_IN_READS, IMPORTS_BETWEEN_READS),
    *(STEPS, WRITES, QUERIES, LISTINGS, WATCHERS, BACKUPS, DEAD_LETTERS, TIGHT, DOWNSAMPLED),
    *(BUSY, IMPORTS, FOLDS_IN_READS, NO_COMMITS, SUSPENDED, TAKE_OVERS, SNAPSHOTS, SNAPSHOTS_OF_NEW_SERIES),
    DETAILED,
)
