"""Claims: decides which values of `loaded` are valid, and which rows a restore and a load from zero write beside them.

`loaded` claims more than a position. Every job that has ended (import, downsampling, fold) counts on its records being
in history, and every querier keeps what it read of the series index at that position. So the rule is:

- `loaded` is written only by a loader that has passed the ends that `chunks` and `series` had when the content of
  history last went back: when it was emptied, replaced by an older copy, or restored.
- A claim of content that went back is withdrawn before that.
- The index generation is raised in between, after the last row and before `loaded`.

All rows are upserts of `loaded` where the highest (position, emitted_through_ms) stands, told apart by topic id:

| topic id | row |
|---|---|
| the log's | the claim |
| `withdrawn:` + the log's | claims up to this value do not stand |
| `anew:` + the log's | position: time in ms at which the last load from zero or from a restore had its rows |
| `restored:` + the log's | the claim of a backup whose rows were restored |
| `restored:` + that of `chunks` or `series` | the offset at which a loader of restored rows begins |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tsdb.history.interface import Loaded
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Log
from tsdb.model.errors import Unavailable

HISTORY_REPLACED = "history_replaced"  # The reason of an error.
_WITHDRAWN, _ANEW, _RESTORED = "withdrawn:", "anew:", "restored:"


class LoadedReads(Protocol):
    """The method of a ChunkSink that claims are read by."""

    def loaded(self, topic_id: str) -> dict[int, Loaded]: ...


def reach(loaded: Loaded) -> tuple[int, int]:
    """Rank of a claim: the highest stands."""
    return loaded.position, loaded.emitted_through_ms


def log_ids(topic_ids: Iterable[str]) -> list[str]:
    """The topic ids of logs among those of all rows, ascending."""
    return sorted(one for one in topic_ids if not one.startswith((_WITHDRAWN, _ANEW, _RESTORED)))


# Withdrawn claims.


def withdrawn(loaded: Loaded) -> Loaded:
    """The row that withdraws a claim, and every lower one."""
    return replace(loaded, topic_id=withdrawn_id(loaded.topic_id))


def withdrawn_id(topic_id: str) -> str:
    """Topic id of the rows that withdraw the claims of a log."""
    return _WITHDRAWN + topic_id


def standing(topic_id: str, rows: Iterable[Loaded]) -> dict[int, Loaded]:
    """The claims that stand, by partition. rows: claims of this topic id, and rows that withdraw them."""
    known = list(rows)
    gone = {one.partition: reach(one) for one in known if one.topic_id != topic_id}
    return {
        one.partition: one
        for one in known
        if one.topic_id == topic_id and (one.partition not in gone or reach(one) > gone[one.partition])
    }


# Detects content that went back.


def loaded_anew(topic_id: str, partition: int, now_ms: int) -> Loaded:
    """The row of a partition whose load from zero, or from a restore, has ended."""
    return Loaded(_ANEW + topic_id, partition, now_ms, 0)


@dataclass(frozen=True, slots=True)
class ClaimsSnapshot:
    """Claims at one moment. anew: by partition, the time at which it was last loaded from zero."""

    topic_id: str
    loaded: Mapping[int, Loaded]
    anew: Mapping[int, int]

    @classmethod
    def read(cls, history: LoadedReads, topic_id: str) -> ClaimsSnapshot:
        """Raises as history does."""
        loaded = history.loaded(topic_id)
        # The order matters: a loader writes the time before the claim, so the claim of a load from zero comes with its
        # time.
        anew = {number: row.position for number, row in history.loaded(_ANEW + topic_id).items()}
        return cls(topic_id, loaded, anew)

    def check(self, history: LoadedReads) -> None:
        """Raises Unavailable (history_replaced) unless history has had all its rows since."""
        now = ClaimsSnapshot.read(history, self.topic_id)
        gone = {
            number
            for number, one in self.loaded.items()
            if number not in now.loaded or reach(now.loaded[number]) < reach(one)
        }
        gone |= {number for number in self.loaded if now.anew.get(number) != self.anew.get(number)}
        if gone:
            raise Unavailable(
                f"history was emptied or replaced in between, in partitions {sorted(gone)[:10]}: what was read of it"
                " may lack rows",
                reason=HISTORY_REPLACED,
            )


# The rows were restored.


@dataclass(frozen=True, slots=True)
class RestoredClaim:
    """Rows of a backup that history has: all records below these offsets, so all of `claim` and of ended jobs then."""

    chunks_offset: int
    series_offset: int
    claim: Loaded


def restored_rows(log: Log, restored: RestoredClaim) -> list[Loaded]:
    """The rows of one partition. The offsets belong to the present incarnations of `chunks` and `series`."""
    number = restored.claim.partition
    return [
        Loaded(_RESTORED + log.topic_id(CHUNKS), number, restored.chunks_offset, 0),
        Loaded(_RESTORED + log.topic_id(SERIES), number, restored.series_offset, 0),
        replace(restored.claim, topic_id=_RESTORED + restored.claim.topic_id),
    ]


def read_restored(history: LoadedReads, log: Log) -> dict[int, RestoredClaim]:
    """Restored claims by partition. Partitions without all three rows are left out, because their restore did not
    end."""
    topic_id = log.topic_id(METRICS)
    chunks, series, claims = (
        history.loaded(_RESTORED + one) for one in (log.topic_id(CHUNKS), log.topic_id(SERIES), topic_id)
    )
    return {
        number: RestoredClaim(chunks[number].position, series[number].position, replace(claim, topic_id=topic_id))
        for number, claim in claims.items()
        if number in chunks and number in series
    }
