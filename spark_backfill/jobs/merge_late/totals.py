"""Totals: counts of plans by partition, added up in tasks, and the results made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from spark_backfill.jobs.merge_late.plan import WindowPlan
from spark_backfill.jobs.merge_late.work import FoldCounts, Reasons, counted
from spark_backfill.result import (
    Fragments,
    MergeLatePlan,
    MergeLateResult,
    PartitionFolds,
    PartitionPlan,
)

if TYPE_CHECKING:
    from pyspark import RDD


@dataclass(frozen=True, slots=True)
class FoldTotals:
    """Totals of some windows. chunks: number of (pack, window)s. fragments: number in all; most: highest number in one
    chunk. left: fragments that no fold covers. troubles: windows that cannot be planned, by reason.

    open: windows that a later run must check again. open_from_ms: start of the first one.
    """

    chunks: int = 0
    fragments: int = 0
    most: int = 0
    left: int = 0
    to_fold: int = 0
    to_delete: int = 0
    troubles: Reasons = ()
    open: int = 0
    open_from_ms: int | None = None

    @classmethod
    def of(cls, plan: WindowPlan) -> FoldTotals:
        """The totals of one window."""
        deletes = sum(len(keys) for _, keys in plan.deletes)
        troubles = ((plan.trouble, 1),) if plan.trouble else ()
        return cls(
            *(1, plan.fragments, plan.fragments, plan.left, int(bool(plan.fold)), deletes, troubles),
            open=int(not plan.idle),
            open_from_ms=None if plan.idle else plan.window_start_ms,
        )

    def plus(self, other: FoldTotals) -> FoldTotals:
        """The totals of both."""
        return FoldTotals(
            self.chunks + other.chunks,
            self.fragments + other.fragments,
            max(self.most, other.most),
            self.left + other.left,
            self.to_fold + other.to_fold,
            self.to_delete + other.to_delete,
            counted(self.troubles, other.troubles),
            self.open + other.open,
            min((one for one in (self.open_from_ms, other.open_from_ms) if one is not None), default=None),
        )


ByPartition = Mapping[int, FoldTotals]


def totals_of(plans: RDD[WindowPlan]) -> ByPartition:
    """Totals by partition; the driver receives one row for each partition."""
    return plans.map(lambda plan: (plan.partition, FoldTotals.of(plan))).reduceByKey(FoldTotals.plus).collectAsMap()


def add_totals(one: ByPartition, other: ByPartition) -> ByPartition:
    """The totals of both, by partition."""
    return {key: one.get(key, FoldTotals()).plus(other.get(key, FoldTotals())) for key in one.keys() | other.keys()}


def plan_of(before: ByPartition) -> MergeLatePlan:
    """Result of a run that only planned."""
    total = _all(before)
    rows = (PartitionPlan(partition=number, **_plan(one)) for number, one in sorted(before.items()))
    return MergeLatePlan(ok=not total.troubles, rows=tuple(rows), **_plan(total), refused=dict(total.troubles))


def result_of(before: ByPartition, after: ByPartition, done: FoldCounts) -> MergeLateResult:
    """Result of a run with `apply`."""
    refused = dict(counted(_all(before).troubles, done.refused))
    return MergeLateResult(
        ok=not refused,
        rows=tuple(
            PartitionFolds(partition=number, before=_fragments(one), after=_fragments(after.get(number, FoldTotals())))
            for number, one in sorted(before.items())
        ),
        before=_fragments(_all(before)),
        after=_fragments(_all(after)),
        folded=done.folded,
        rows_covered=done.rows,
        rows_deleted=done.deleted,
        chunks_written=done.chunks,
        bytes_written=done.bytes,
        windows_open=_all(after).open,
        open_from_ms=_all(after).open_from_ms,
        refused=refused,
    )


def _all(parts: ByPartition) -> FoldTotals:
    total = FoldTotals()
    for one in parts.values():
        total = total.plus(one)
    return total


def _fragments(total: FoldTotals) -> Fragments:
    return Fragments(
        chunks=total.chunks,
        fragments=total.fragments,
        uncovered=total.left,
        per_chunk=round(total.fragments / total.chunks, 3) if total.chunks else 0.0,
        most_of_a_chunk=total.most,
    )


def _plan(total: FoldTotals) -> dict[str, Any]:
    return {**asdict(_fragments(total)), "to_fold": total.to_fold, "rows_to_delete": total.to_delete}
