"""The job: plan, delete, fold, wait for the loader, read back, note. Without `apply` it only makes the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from spark_backfill.jobs.merge_late.plan import Rule, WindowPlan, plan_packs
from spark_backfill.jobs.merge_late.read_backs import KEPT_MS, Fold, ReadBacks, broker_now_ms
from spark_backfill.jobs.merge_late.totals import add_totals, plan_of, result_of, totals_of
from spark_backfill.jobs.merge_late.work import FoldCounts, delete_rows, fold_windows, look_again
from spark_backfill.packs import packs_of
from spark_backfill.persisted import persisted
from spark_backfill.places import Places
from spark_backfill.result import MergeLatePlan, MergeLateResult
from spark_backfill.writing.loader_wait import JobEnds, wait_for_loader
from tsdb.codec.records.log_record import encode_tick
from tsdb.history.interface import WindowRange
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import Unavailable
from tsdb.model.meta import MetaSettings

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

NAME = "merge-late"
EVER_MS = 1 << 60
HOUR_MS = 3600 * 1000
FRAGMENTS_MAX = 8
OLDER_THAN_MS = 7 * 24 * HOUR_MS  # Windows this old accept no late samples any more, so this fold is their last.


@dataclass(frozen=True, slots=True)
class MergeLateOptions:
    """apply: write; False: only report the plan. fragments_max, older_than_ms: see Rule.

    delete_after_ms: time from reading a fold back until the rows it covers are deleted; longer than any read that may
    have begun before the fold was in history. start_ms, end_ms: windows to check. loader_timeout_ms: longest wait until
    written records are in history. tasks: number of Spark tasks; None: the session's parallelism.
    """

    apply: bool = False
    fragments_max: int = FRAGMENTS_MAX
    older_than_ms: int = OLDER_THAN_MS
    delete_after_ms: int = HOUR_MS
    start_ms: int = -EVER_MS
    end_ms: int = EVER_MS
    loader_timeout_ms: int = 900_000
    tasks: int | None = None


def merge_late(
    spark: SparkSession, places: Places, meta: MetaSettings, options: MergeLateOptions, clock: Clock | None = None
) -> MergeLatePlan | MergeLateResult:
    """Fold windows with many fragments and delete rows that earlier folds cover.

    Raises as log and history do, and Unavailable (loader_behind, not_read_back): a later run continues the work then.
    """
    run = _Run(spark, places, meta, options, clock or SystemClock())
    return run.apply() if options.apply else run.plan()


class _Run:
    def __init__(
        self, spark: SparkSession, places: Places, meta: MetaSettings, options: MergeLateOptions, clock: Clock
    ) -> None:
        self._context = spark.sparkContext
        self._places = places
        self._partitions = range(meta.partitions)
        self._options = options
        self._clock = clock
        self._tasks = options.tasks or self._context.defaultParallelism
        self._rule = Rule(
            WindowRange(options.start_ms, options.end_ms),
            meta.time_set.window_ms,
            meta.part_bytes_max,
            options.fragments_max,
            clock.now_ms() - options.older_than_ms,
        )

    def plan(self) -> MergeLatePlan:
        return plan_of(totals_of(self._plans()))

    def apply(self) -> MergeLateResult:
        with self._places.open_log() as log:
            # After this wait, folds of a run that ended early are complete in history, or they never will be.
            self._wait(log)
            now_ms = broker_now_ms(log)
            read_backs = ReadBacks.read(log)
            self._rule = replace(self._rule, deletable=read_backs.before(now_ms - self._options.delete_after_ms))
            # A plan names the exact rows of its fold, so all steps must read the same plan.
            with persisted(self._plans()) as plans:
                result = self._apply(log, read_backs, plans)
            read_backs.forget(log, now_ms - max(KEPT_MS, 2 * self._options.delete_after_ms))
        return result

    def _apply(self, log: Log, read_backs: ReadBacks, plans: RDD[WindowPlan]) -> MergeLateResult:
        read_backs.note(log, _seen(plans))
        deleted = self._delete(plans)
        orders = self._tick(log, plans)
        folded = self._fold(plans, orders)
        self._wait(log)
        with persisted(self._look_again(plans)) as again:
            _check_read_back(again, orders, folded)
            read_backs.note(log, _seen(again))
            after = add_totals(totals_of(plans.filter(_is_idle)), totals_of(again))
        return result_of(totals_of(plans), after, deleted.plus(folded))

    def _plans(self) -> RDD[WindowPlan]:
        self._describe("planning")
        packs = packs_of(self._context, self._places, self._rule.span, self._tasks)
        return packs.mapPartitions(partial(plan_packs, self._places, self._rule))

    def _delete(self, plans: RDD[WindowPlan]) -> FoldCounts:
        self._describe("deleting covered rows")
        deletes = plans.filter(lambda plan: bool(plan.deletes))
        return deletes.mapPartitions(partial(delete_rows, self._places)).fold(FoldCounts(), FoldCounts.plus)

    def _tick(self, log: Log, plans: RDD[WindowPlan]) -> dict[int, int]:
        """Append a tick to each partition with a fold; its offset, unique to this run, is the order of the folds."""
        partitions = plans.filter(_is_to_fold).map(lambda plan: plan.partition).distinct().collect()
        # The timestamp is used only in topics with CreateTime.
        tick, now_ms = encode_tick(), self._clock.now_ms()
        return {one: log.append_sync(METRICS, one, tick, timestamp_ms=now_ms).offset for one in sorted(partitions)}

    def _fold(self, plans: RDD[WindowPlan], orders: dict[int, int]) -> FoldCounts:
        self._describe("folding")
        folding = partial(fold_windows, self._places, self._rule, orders)
        return plans.filter(_is_to_fold).mapPartitions(folding).fold(FoldCounts(), FoldCounts.plus)

    def _look_again(self, plans: RDD[WindowPlan]) -> RDD[WindowPlan]:
        self._describe("reading back")
        looking = partial(look_again, self._places, self._rule)
        return plans.filter(lambda plan: not plan.idle).mapPartitions(looking)

    def _wait(self, log: Log) -> None:
        wait_for_loader(log, JobEnds.of(log, self._partitions), self._options.loader_timeout_ms / 1000, self._clock)

    def _describe(self, what: str) -> None:
        self._context.setJobDescription(f"{NAME}: {what}")


def _check_read_back(again: RDD[WindowPlan], orders: dict[int, int], folded: FoldCounts) -> None:
    """Raises Unavailable (not_read_back) unless every fold of this run is complete in history."""
    found = again.filter(lambda plan: orders.get(plan.partition) in plan.seen).count()
    if found < folded.folded:
        raise Unavailable(
            f"of {folded.folded} chunks that were folded {found} came back from history, although the loader has passed"
            " all of them: look for dead letters; nothing they cover is deleted",
            reason="not_read_back",
        )


def _seen(plans: RDD[WindowPlan]) -> set[Fold]:
    return set(plans.flatMap(lambda plan: [(plan.partition, order) for order in plan.seen]).distinct().collect())


def _is_to_fold(plan: WindowPlan) -> bool:
    return bool(plan.fold)


def _is_idle(plan: WindowPlan) -> bool:
    return plan.idle
