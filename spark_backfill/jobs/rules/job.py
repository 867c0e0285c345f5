"""The job: append a tick to each partition, wait until history has all records before it, and evaluate the rules over
history in tasks.

A task has some components of rules over a stretch of whole windows. A component with alerts, or with rules that read
themselves, is one task over the whole range, because each of its steps needs the one before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_backfill.jobs.rules.storage import SAMPLES_MAX
from spark_backfill.jobs.rules.work import RulesCounts, RulesItem, RulesTask, RuleTexts
from spark_backfill.places import Places
from spark_backfill.result import FailedRule, RulesResult
from spark_backfill.writing.chunk_writer import RANGES_MAX
from spark_backfill.writing.import_run import DAY_MS, ImportRun, begin_run
from spark_backfill.writing.loader_wait import wait_for_chunks, wait_until_seen
from tsdb.history.claims import ClaimsSnapshot
from tsdb.history.interface import ChunkStore
from tsdb.log.interface import METRICS
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import HoleInRange, InvalidRequest, Unavailable
from tsdb.model.meta import MetaSettings
from tsdb.model.times import time_text
from tsdb.model.window import floor_to
from tsdb.rules.dependencies import RuleComponent
from tsdb.rules.reach import reaches_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "rules"
# More tasks than cores, because the work of stretches differs.
TASKS_A_CORE = 4
ORDER_MAX = (1 << 63) - 1  # A dry run leaves out no chunks.


@dataclass(frozen=True, slots=True)
class RulesOptions:
    """start_ms, end_ms: [start_ms, end_ms) of sample times. job_id: names one work; a second run with it writes the
    same keys. dry_run: count the samples that differ from the stored ones, and write nothing. allow_holes: evaluate in
    spite of named losses.

    wait_s: longest wait for chunk stage and loader, before and after the work. tasks: number of tasks; None: some for
    each core of the session. samples_max: samples of one selector that a task reads at once.
    """

    start_ms: int
    end_ms: int
    job_id: str
    dry_run: bool = False
    allow_holes: bool = False
    wait_s: float = 900.0
    tasks: int | None = None
    samples_max: int = SAMPLES_MAX


def evaluate_rules(
    spark: SparkSession,
    texts: RuleTexts,
    places: Places,
    shared: MetaSettings,
    options: RulesOptions,
    clock: Clock | None = None,
) -> RulesResult:
    """Evaluate all rules at each step with a sample time in the range, and write the samples that differ.

    Raises InvalidRequest (bad_document, bad_range, too_recent, rule_circle, rule_reads_ahead, too_many_components),
    ConfigMismatch (other_import), HoleInRange, Unavailable (history_behind, loader_behind), and as history does.
    """
    components = texts.components()
    if options.start_ms >= options.end_ms:
        raise InvalidRequest(f"start {options.start_ms} is not before end {options.end_ms}", reason="bad_range")
    if len(components) > RANGES_MAX:
        raise InvalidRequest(
            f"{len(components)} independent parts of rules; one run has at most {RANGES_MAX}: give fewer files",
            reason="too_many_components",
        )
    return _Run(spark, texts, components, places, shared, options, clock or SystemClock()).make()


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        texts: RuleTexts,
        components: Sequence[RuleComponent],
        places: Places,
        shared: MetaSettings,
        options: RulesOptions,
        clock: Clock,
    ) -> None:
        self._context = spark.sparkContext
        self._texts = texts
        self._components = components
        self._places = places
        self._shared = shared
        self._options = options
        self._clock = clock
        reaches = [
            reach
            for component in components
            for group in component.groups
            for rule in group.rules
            for reach in reaches_of(rule.query, texts.lookback_ms)
        ]
        fixed = [reach.base_ms - reach.newest_ms for reach in reaches if reach.base_ms is not None]
        ahead_ms = max([0, *(-reach.newest_ms for reach in reaches)])
        self._needs_ms = max([options.end_ms + ahead_ms, *fixed])  # All samples before this time count.
        self._reads_from_ms = options.start_ms - max([0, *(reach.oldest_ms for reach in reaches)])

    def make(self) -> RulesResult:
        self._check_end(self._clock.now_ms() - self._shared.time_set.least_hold_ms - DAY_MS)
        partitions = range(self._shared.partitions)
        with self._places.open_log() as log, self._places.open_history() as history:
            if not self._options.allow_holes:
                self._check_holes(history)
            if self._options.dry_run:
                topic_id = log.topic_id(METRICS)
                standing = self._claims(history, topic_id)
                done = self._evaluate(topic_id, dict.fromkeys(partitions, ORDER_MAX))
                standing.check(history)
                return self._result(done)
            run = begin_run(log, self._options.job_id, partitions, self._fingerprint(), self._clock)
            self._check_run(run)
            standing = wait_for_chunks(history, run, self._needs_ms, self._options.wait_s, self._clock)
            done = self._evaluate(run.topic_id, run.orders)
            # Values of a part of the rows would win over better ones until another run evaluates them again.
            standing.check(history)
            wait_until_seen(log, partitions, run.job_id, self._options.wait_s, self._clock)
        return self._result(done)

    def _check_run(self, run: ImportRun) -> None:
        self._check_end(run.end_ms(self._shared.time_set))

    def _check_end(self, end_ms: int) -> None:
        if self._options.end_ms > end_ms:
            raise InvalidRequest(
                f"the range ends at {time_text(self._options.end_ms)}; history takes samples before"
                f" {time_text(end_ms)}: a ruler evaluates newer ones",
                reason="too_recent",
            )

    def _check_holes(self, history: ChunkStore) -> None:
        found = [one.hole for one in history.holes(None, self._reads_from_ms, self._needs_ms) if not one.accepted]
        if found:
            hole = found[0]
            raise HoleInRange(
                f"{len(found)} named losses lie in what the rules read, the first in partition {hole.partition},"
                f" [{hole.start_ms}, {hole.end_ms}), {hole.reason}: accept them (`tsdb holes`), or allow them"
            )

    def _claims(self, history: ChunkStore, topic_id: str) -> ClaimsSnapshot:
        standing = ClaimsSnapshot.read(history, topic_id)
        for partition in range(self._shared.partitions):
            loaded = standing.loaded.get(partition)
            if loaded is None or loaded.emitted_through_ms < self._needs_ms:
                raise Unavailable(
                    f"history has not all samples of partition {partition} before {time_text(self._needs_ms)}: look"
                    " whether chunk stage and loader run",
                    reason="history_behind",
                )
        return standing

    def _evaluate(self, topic_id: str, orders: dict[int, int]) -> RulesCounts:
        options = self._options
        self._context.setJobDescription(f"{NAME}: [{options.start_ms}, {options.end_ms})")
        task = RulesTask(
            self._places,
            self._shared,
            self._texts,
            topic_id,
            orders,
            options.start_ms,
            not options.dry_run,
            options.samples_max,
        )
        tasks = options.tasks or TASKS_A_CORE * self._context.defaultParallelism
        items = list(planned(self._components, options.start_ms, options.end_ms, self._window_ms, tasks))
        found = self._context.parallelize(items, len(items)).mapPartitions(task)
        return found.fold(RulesCounts(), RulesCounts.plus)

    @property
    def _window_ms(self) -> int:
        return self._shared.time_set.window_ms

    def _fingerprint(self) -> str:
        """A job id stands for these rules over this range."""
        text = repr((self._texts, self._options.start_ms, self._options.end_ms))
        return hashlib.sha256(text.encode()).hexdigest()

    def _result(self, done: RulesCounts) -> RulesResult:
        groups = [group for component in self._components for group in component.groups]
        rows = tuple(
            FailedRule(file=file, group=group, rule=rule, steps=steps, error=done.errors[file, group, rule])
            for (file, group, rule), steps in sorted(done.failures.items())
        )
        return RulesResult(
            ok=not rows and not done.refused,
            rows=rows,
            job_id=self._options.job_id,
            dry_run=self._options.dry_run,
            start_ms=self._options.start_ms,
            end_ms=self._options.end_ms,
            groups=len(groups),
            rules=sum(len(group.rules) for group in groups),
            evaluations=done.evaluations,
            failures=sum(done.failures.values()),
            results=done.results,
            samples=done.written.samples,
            refused=done.refused,
            chunks=done.written.chunks,
            bytes=done.written.bytes,
            announced=done.announced,
            loaded=not self._options.dry_run,
        )


def planned(
    components: Sequence[RuleComponent], start_ms: int, end_ms: int, window_ms: int, tasks: int
) -> Iterator[RulesItem]:
    """About as many items as tasks. Sequential components come first, because each takes the whole range."""
    parallel = [number for number, component in enumerate(components) if not component.is_sequential]
    for number, component in enumerate(components):
        if component.is_sequential:
            yield RulesItem((number,), start_ms, end_ms)
    if not parallel:
        return
    first_ms = floor_to(start_ms, window_ms)
    windows = -(-(end_ms - first_ms) // window_ms)
    each_ms = -(-windows // min(windows, tasks)) * window_ms
    shares = min(-(-tasks * each_ms // (windows * window_ms)), len(parallel))
    for at_ms in range(first_ms, end_ms, each_ms):
        for share in range(shares):
            yield RulesItem(tuple(parallel[share::shares]), max(at_ms, start_ms), min(at_ms + each_ms, end_ms))
