"""Resume: writes and reads the plan of a rebuild and the counts of its finished items (spark_backfill.jobs.noted_run).

The first run fixes the end of the late minutes, because the log grows, and where the log begins, because the log is
trimmed: all runs of a job have the same items. Format: docs/formats/rebuild-run.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import TypeVar

from spark_backfill.building.items import BaseItem, Item
from spark_backfill.building.plan import PartitionRange
from spark_backfill.jobs.noted_run import NotedRun, Notes, begin_noted
from tsdb.chunks.late_scan import Windows
from tsdb.log.interface import Log
from tsdb.model.errors import ConfigMismatch

KIND = "rebuild"


@dataclass(slots=True)
class Rebuilt:
    """Counts of the records written. history_chunks: chunks of any kind that were copied from history; refused: those
    that do not decode. bytes: keys and values of all."""

    base_chunks: int = 0
    late_chunks: int = 0
    windows: int = 0
    bytes: int = 0
    history_chunks: int = 0
    holes: int = 0
    refused: int = 0

    def plus(self, other: Rebuilt) -> Rebuilt:
        """The sum of both counts."""
        return Rebuilt(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Rebuilt)))


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """All rows of history in these windows, of the packs in one of several equal ranges of ids. share: number of the
    range, from 0."""

    windows: Windows
    share: int
    shares: int


RebuildItem = Item | HistoryItem
SomeItem = TypeVar("SomeItem", bound=RebuildItem)


@dataclass(frozen=True, slots=True)
class RebuildRun:
    """ends: late_end and late_end_ms of each partition. seam_ms: the first window that the log had whole. shares:
    number of items of history. All as the first run found them. done: counts of each item that is done, by its key.
    """

    noted: NotedRun
    ends: Mapping[int, tuple[int, int]]
    seam_ms: int
    shares: int
    done: Mapping[str, Rebuilt]

    @property
    def notes(self) -> Notes:
        """The value with which tasks note finished items."""
        return self.noted.notes

    def limited(self, found: Sequence[PartitionRange]) -> list[PartitionRange]:
        """The ranges up to the ends of the first run."""
        ends = self.ends
        return [replace(one, late_end=ends[one.partition][0], late_end_ms=ends[one.partition][1]) for one in found]

    def is_done(self, item: RebuildItem) -> bool:
        """Whether an earlier run finished the item."""
        return item_key(item) in self.done

    def total(self) -> Rebuilt:
        """The counts of all items that were done when the run began."""
        counts = Rebuilt()
        for one in self.done.values():
            counts = counts.plus(one)
        return counts


def begin_rebuild(
    log: Log, job_id: str, fingerprint: str, found: Sequence[PartitionRange], seam_ms: int = 0, shares: int = 1
) -> RebuildRun:
    """The job's plan and done items; a new plan when it has none. fingerprint: names the range and the packs. Raises as
    begin_noted (other_rebuild)."""

    def plan() -> dict[str, object]:
        ends = {str(one.partition): [one.late_end, one.late_end_ms] for one in found}
        return {"ends": ends, "seam_ms": seam_ms, "shares": shares}

    noted = begin_noted(log, KIND, job_id, fingerprint, plan)
    ends = noted.parsed(_ends_of)
    seam_ms, shares = noted.parsed(lambda body: (int(body["seam_ms"]), int(body["shares"])))  # type: ignore[call-overload]
    return RebuildRun(noted, ends, seam_ms, shares, {key: _counts(job_id, one) for key, one in noted.done.items()})


def note(notes: Notes, log: Log, item: RebuildItem, done: Rebuilt) -> None:
    """Note that all records of an item are acknowledged; durable when it returns."""
    notes.write(log, item_key(item), astuple(done))


def item_key(item: RebuildItem) -> str:
    """The item's part of the key of its note in `meta`."""
    match item:
        case BaseItem():
            return f"base/{item.partition}/{item.start_ms}"
        case HistoryItem():
            return f"history/{item.windows.start_ms}/{item.windows.end_ms}/{item.share}/{item.shares}"
        case _:
            return f"late/{item.partition}/{item.first_offset}/{item.end_offset}"


def history_items(start_ms: int, end_ms: int, shares: int) -> list[HistoryItem]:
    """Items for all rows in windows of [start_ms, end_ms); none for an empty range."""
    if start_ms >= end_ms:
        return []
    return [HistoryItem(Windows(start_ms, end_ms), share, shares) for share in range(shares)]


def left(run: RebuildRun | None, items: Iterable[SomeItem]) -> list[SomeItem]:
    """The items that no earlier run finished. run: None for a rebuild that notes nothing."""
    return [item for item in items if run is None or not run.is_done(item)]


def _ends_of(body: Mapping[str, object]) -> dict[int, tuple[int, int]]:
    ends = body["ends"].items()  # type: ignore[attr-defined]
    return {int(partition): (int(end), int(end_ms)) for partition, (end, end_ms) in ends}


def _counts(job_id: str, counts: Sequence[int]) -> Rebuilt:
    if len(counts) > len(fields(Rebuilt)):
        raise ConfigMismatch(f"topic meta: a note of {KIND} {job_id} has {len(counts)} counts", reason="meta")
    return Rebuilt(*counts)
