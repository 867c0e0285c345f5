"""Work: write folds to the log, and null records for rows that a fold makes redundant. Runs in tasks.

Both are safe to repeat: the plan names the exact rows of a fold, so a repeated task writes the same keys and bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.merge_late.plan import Rule, WindowPlan, plan_window, window_rows
from spark_backfill.places import Places
from spark_backfill.writing.appender import TaskAppender
from tsdb.codec.chunk.key import ChunkKey, Kind, encode_key
from tsdb.history.fold import fold, redundant
from tsdb.history.interface import ChunkRow, WindowRange
from tsdb.log.interface import CHUNKS
from tsdb.model.errors import CorruptData, InvalidRequest, UnknownVersion

REFUSED = (CorruptData, InvalidRequest, UnknownVersion)
NOT_REDUNDANT = "not_redundant"

Reasons = tuple[tuple[str, int], ...]  # (reason, count), ascending.


@dataclass(frozen=True, slots=True)
class FoldCounts:
    """Counts of work done. rows: rows that the written folds cover. refused: unchanged windows, by reason."""

    folded: int = 0
    rows: int = 0
    chunks: int = 0
    bytes: int = 0
    deleted: int = 0
    refused: Reasons = ()

    def plus(self, other: FoldCounts) -> FoldCounts:
        """The sum of both counts."""
        return FoldCounts(
            self.folded + other.folded,
            self.rows + other.rows,
            self.chunks + other.chunks,
            self.bytes + other.bytes,
            self.deleted + other.deleted,
            counted(self.refused, other.refused),
        )


def fold_windows(
    places: Places, rule: Rule, orders: Mapping[int, int], plans: Iterable[WindowPlan]
) -> Iterator[FoldCounts]:
    """Write the folds of the plans. orders: order of this run's folds, by partition."""
    with quoted_errors(), places.open_history() as history, places.open_log() as log:
        appender = TaskAppender(log, CHUNKS)
        for plan in plans:
            rows = window_rows(history, plan.pack_id, plan.window_start_ms)
            covered = [rows[key] for key in plan.fold if key in rows]
            if not covered:
                continue  # Another run has deleted these rows since the plan.
            try:
                made = fold(
                    covered, orders[plan.partition], window_ms=rule.window_ms, part_bytes_max=rule.part_bytes_max
                )
            except REFUSED as error:
                yield FoldCounts(refused=((error.reason, 1),))
                continue
            for row in made:
                appender.send(plan.partition, encode_key(row.key), row.value)
            yield FoldCounts(1, len(covered), len(made), sum(len(row.value) for row in made))
        appender.finish()


def delete_rows(places: Places, plans: Iterable[WindowPlan]) -> Iterator[FoldCounts]:
    """Write null records for the plans' rows, after checking that the merge is the same without them."""
    with quoted_errors(), places.open_history() as history, places.open_log() as log:
        appender = TaskAppender(log, CHUNKS)
        for plan in plans:
            rows = window_rows(history, plan.pack_id, plan.window_start_ms)
            for order, keys in plan.deletes:
                yield _delete(appender, plan.partition, rows, order, keys)
        appender.finish()


def look_again(places: Places, rule: Rule, plans: Iterable[WindowPlan]) -> Iterator[WindowPlan]:
    """New plans of the same windows, from history's current rows."""
    with quoted_errors(), places.open_history() as history:
        for plan in plans:
            span = WindowRange(plan.window_start_ms, plan.window_start_ms + 1)
            keys = history.keys(plan.pack_id, span)
            if keys:
                yield plan_window(history, rule, plan.partition, keys)


def _delete(
    appender: TaskAppender, partition: int, rows: Mapping[ChunkKey, ChunkRow], order: int, keys: Iterable[ChunkKey]
) -> FoldCounts:
    folded = [row for key, row in rows.items() if (key.kind, key.order) == (Kind.FOLDED, order)]
    covered = [rows[key] for key in keys if key in rows]
    try:
        if not redundant(folded, covered):
            return FoldCounts(refused=((NOT_REDUNDANT, 1),))
    except REFUSED as error:
        return FoldCounts(refused=((error.reason, 1),))
    for row in covered:
        appender.send(partition, encode_key(row.key), None)
    return FoldCounts(deleted=len(covered))


def counted(one: Reasons, other: Reasons) -> Reasons:
    """The sum of both counts, by reason."""
    tally = Counter(dict(one))
    tally.update(dict(other))
    return tuple(sorted(tally.items()))
