"""Loader wait: wait until the loaders' commits show that a job's records are in history, and queriers know of them; or
until history has what the log had at the begin of a job."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from spark_backfill.writing.import_run import ImportRun
from tsdb.history.claims import ClaimsSnapshot
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import GROUP
from tsdb.log.index_generation import raise_generation
from tsdb.log.interface import CHUNKS, SERIES, Log, TopicPartition
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable

LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class JobEnds:
    """Ends of the partitions of `chunks` and `series` after a job's last record: one past the last offset of each."""

    next_offsets: dict[TopicPartition, int]

    @classmethod
    def of(cls, log: Log, partitions: Collection[int]) -> JobEnds:
        """The current ends of these partitions. Empty partitions are left out."""
        return cls(
            {
                (topic, partition): marks.high
                for topic in (CHUNKS, SERIES)
                for partition, marks in log.watermarks(topic, sorted(partitions)).items()
                if marks.high > marks.low
            }
        )


def wait_until_seen(log: Log, partitions: Collection[int], job_id: str, within_s: float, clock: Clock) -> None:
    """Return when loaders have committed past the current ends of these partitions and queriers have dropped older
    indexes, so that every later answer includes the new series. Raises Unavailable (loader_behind)."""
    wait_for_loader(log, JobEnds.of(log, partitions), within_s, clock)
    raise_generation(log, job_id, clock)


def wait_for_loader(log: Log, ends: JobEnds, within_s: float, clock: Clock) -> None:
    """Return when loaders have committed past all ends. Raises Unavailable (loader_behind) with their positions."""
    give_up_at = clock.monotonic() + within_s
    while True:
        behind = _behind(log, ends)
        if not behind:
            return
        if clock.monotonic() >= give_up_at:
            raise Unavailable(
                f"everything is in the log, but within {within_s:g} s the loader did not load all of it:"
                f" {_shown(behind)}; it goes on by itself while one runs",
                reason="loader_behind",
            )
        clock.sleep(LOOK_S)


def wait_for_chunks(history: ChunkStore, run: ImportRun, end_ms: int, within_s: float, clock: Clock) -> ClaimsSnapshot:
    """Wait until history has all records below the ticks of a run, of samples before end_ms. Later records have higher
    orders than the chunks of the run. Returns the claims that say so.

    Raises Unavailable (history_behind).
    """
    give_up_at = clock.monotonic() + within_s
    while True:
        standing = ClaimsSnapshot.read(history, run.topic_id)
        loaded = standing.loaded
        behind = [
            partition
            for partition, order in run.orders.items()
            if partition not in loaded
            or loaded[partition].position <= order
            or loaded[partition].emitted_through_ms < end_ms
        ]
        if not behind:
            return standing
        if clock.monotonic() >= give_up_at:
            raise Unavailable(
                f"within {within_s:g} s chunk stage and loader did not bring history past this run's ticks in"
                f" partitions {behind[:10]}: look whether both run",
                reason="history_behind",
            )
        clock.sleep(LOOK_S)


def _behind(log: Log, ends: JobEnds) -> list[tuple[TopicPartition, int, int]]:
    """(topic partition, committed, end) of each end that loaders have not passed."""
    with log.group(GROUP) as member:
        committed = member.committed(sorted(ends.next_offsets))
    found = []
    for place, end in ends.next_offsets.items():
        position = committed[place]
        at = 0 if position is None else position.next_offset
        if at < end:
            found.append((place, at, end))
    return found


def _shown(behind: Iterable[tuple[TopicPartition, int, int]]) -> str:
    return "; ".join(f"{topic} {partition} is at {at} of {end}" for (topic, partition), at, end in list(behind)[:3])
