"""Totals: counts of plans by partition, added up in tasks, and the job summary made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_backfill.merge_late.plan import WindowPlan
from spark_backfill.merge_late.work import FoldCounts, Reasons, counted
from spark_backfill.summary import Figure, JobSummary

if TYPE_CHECKING:
    from pyspark import RDD

NAME = "merge-late"


@dataclass(frozen=True, slots=True)
class FoldTotals:
    """Totals of some windows. chunks: number of (pack, window)s. fragments: number in all; most: highest number in one
    chunk. left: fragments that no fold covers. troubles: windows that cannot be planned, by reason."""

    chunks: int = 0
    fragments: int = 0
    most: int = 0
    left: int = 0
    to_fold: int = 0
    to_delete: int = 0
    troubles: Reasons = ()

    @classmethod
    def of(cls, plan: WindowPlan) -> FoldTotals:
        """The totals of one window."""
        deletes = sum(len(keys) for _, keys in plan.deletes)
        troubles = ((plan.trouble, 1),) if plan.trouble else ()
        return cls(1, plan.fragments, plan.fragments, plan.left, int(bool(plan.fold)), deletes, troubles)

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
        )


ByPartition = Mapping[int, FoldTotals]


def totals_of(plans: RDD[WindowPlan]) -> ByPartition:
    """Totals by partition; the driver receives one row for each partition."""
    return plans.map(lambda plan: (plan.partition, FoldTotals.of(plan))).reduceByKey(FoldTotals.plus).collectAsMap()


def add_totals(one: ByPartition, other: ByPartition) -> ByPartition:
    """The totals of both, by partition."""
    return {key: one.get(key, FoldTotals()).plus(other.get(key, FoldTotals())) for key in one.keys() | other.keys()}


def plan_summary(before: ByPartition) -> JobSummary:
    """Summary of a run that only planned."""
    figures = {"applied": False, **_fragments(before, ""), **_due(before)}
    return _summary(figures, _all(before).troubles, before, None)


def run_summary(before: ByPartition, after: ByPartition, done: FoldCounts) -> JobSummary:
    """Summary of a run with `apply`."""
    figures: dict[str, Figure] = {
        "applied": True,
        **_fragments(before, "_before"),
        **_fragments(after, "_after"),
        "folded": done.folded,
        "rows_covered": done.rows,
        "rows_deleted": done.deleted,
        "chunks_written": done.chunks,
        "bytes_written": done.bytes,
    }
    return _summary(figures, counted(_all(before).troubles, done.refused), before, after)


def _summary(
    figures: Mapping[str, Figure], refused: Reasons, before: ByPartition, after: ByPartition | None
) -> JobSummary:
    reasons = {f"refused_{reason}": count for reason, count in refused}
    rows = tuple(
        {"partition": number, **_fragments({number: one}, "_before" if after else ""), **_rest(number, one, after)}
        for number, one in sorted(before.items())
    )
    return JobSummary(NAME, not refused, {**figures, **reasons}, rows)


def _rest(partition: int, one: FoldTotals, after: ByPartition | None) -> dict[str, Figure]:
    if after is None:
        return _due({partition: one})
    return _fragments({partition: after.get(partition, FoldTotals())}, "_after")


def _all(parts: ByPartition) -> FoldTotals:
    total = FoldTotals()
    for one in parts.values():
        total = total.plus(one)
    return total


def _fragments(parts: ByPartition, suffix: str) -> dict[str, Figure]:
    total = _all(parts)
    return {
        f"chunks{suffix}": total.chunks,
        f"fragments{suffix}": total.fragments,
        f"uncovered{suffix}": total.left,
        f"per_chunk{suffix}": round(total.fragments / total.chunks, 3) if total.chunks else 0.0,
        f"most_of_a_chunk{suffix}": total.most,
    }


def _due(parts: ByPartition) -> dict[str, Figure]:
    total = _all(parts)
    return {"to_fold": total.to_fold, "rows_to_delete": total.to_delete}
