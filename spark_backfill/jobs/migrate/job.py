"""The job: copy every row of a history to another one, write where its loaders begin, and compare both to the bit.

Readers and loaders use the source meanwhile. The first run fixes the commits of the source's loaders, as a backup does,
so the copy has at least all that these commits cover. A loader of the target begins there and brings all that came
since, deletions included. A run that ended early is continued by its job id; finished items are notes in `meta`
(docs/formats/migration-run.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_backfill.jobs.migrate.compare import compare_histories
from spark_backfill.jobs.migrate.copying import EVER, Copied, CopyItem, chunk_items, copy_items, series_items
from spark_backfill.jobs.noted_run import NotedRun, begin_noted
from spark_backfill.places import Places
from spark_backfill.result import MigrateResult
from tsdb.backup.checks import check_continuation, check_empty
from tsdb.backup.manifest import BackupPlan, decode_plan, encode_plan
from tsdb.backup.plan import check_same, new_plan
from tsdb.backup.restore import write_all, write_claims
from tsdb.history.interface import ChunkStore
from tsdb.history.open import open_history_admin
from tsdb.history.shared_settings import HistoryAdmin, check_history
from tsdb.log.interface import METRICS, Log
from tsdb.log.open import open_topics
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import InvalidRequest
from tsdb.model.meta import MetaSettings
from tsdb.model.secrets import masked
from tsdb.ops.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND, NAME = "migration", "migrate"
SHARES = 64  # Items of the series index.

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MigrateOptions:
    """to: URL of the target, with the settings of the source's connection. group_id: the group of the source's loaders.
    job_id: a run with the id of an interrupted one does only what that one did not finish."""

    to: str
    group_id: str
    job_id: str


def check_target(places: Places, to: str, meta: MetaSettings) -> None:
    """Raises InvalidRequest (same_history), ConfigMismatch (history_url, history_schema)."""
    if to.rstrip("/") == places.history.rstrip("/"):
        raise InvalidRequest(f"{masked(to)} is the history to copy: give another one as target", reason="same_history")
    with open_history_admin(to, places.history_settings) as admin:
        check_history(admin, meta)


def migrate(
    spark: SparkSession, places: Places, meta: MetaSettings, options: MigrateOptions, clock: Clock | None = None
) -> MigrateResult:
    """Copy, compare, and return what was done. The result is ok when both histories have the same rows.

    Raises InvalidRequest (history_not_empty, history_replaced, other_topic), as check_target and begin_noted
    (other_migration), and as log and both histories do: the same job id continues the work then.
    """
    check_target(places, options.to, meta)
    with ExitStack() as stack:
        opened = stack.enter_context(places.open_log())
        source = stack.enter_context(places.open_history())
        admin = stack.enter_context(open_history_admin(places.history, places.history_settings))
        target_places = replace(places, history=options.to)
        target = stack.enter_context(target_places.open_history())
        run = _begin(opened, source, admin, target, places, options, clock or SystemClock())
        return _Run(spark, places, target_places, opened, source, target, run, clock or SystemClock()).result()


def _begin(
    opened: Log,
    source: ChunkStore,
    admin: HistoryAdmin,
    target: ChunkStore,
    places: Places,
    options: MigrateOptions,
    clock: Clock,
) -> NotedRun:
    def plan() -> Mapping[str, object]:
        made = new_plan(opened, source, admin, options.group_id, (), clock)
        check_empty(made.topic_ids[METRICS], target)
        return {"backup": encode_plan(made).decode()}

    fingerprint = f"{masked(places.history)} to {masked(options.to)}"
    return begin_noted(opened, KIND, options.job_id, fingerprint, plan)


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        places: Places,
        target_places: Places,
        opened: Log,
        source: ChunkStore,
        target: ChunkStore,
        run: NotedRun,
        clock: Clock,
    ) -> None:
        self._spark = spark
        self._places = places
        self._target_places = target_places
        self._log = opened
        self._source = source
        self._target = target
        self._run = run
        self._clock = clock
        where = f"topic meta, {KIND} {run.job_id}"
        self._plan: BackupPlan = run.parsed(lambda body: decode_plan(str(body["backup"]).encode(), where))

    def result(self) -> MigrateResult:
        plan, run = self._plan, self._run
        self._check_same()
        items: list[CopyItem] = [*chunk_items(plan.tokens), *series_items(self._source, SHARES)]
        todo = [item for item in items if item.key not in run.done]
        done = copy_items(self._spark, self._places, self._target_places, plan, todo, run.notes)
        for counts in run.done.values():
            done = done.plus(Copied(*counts))
        holes = self._copy_holes()
        self._check_same()
        goes_on = self._write_claims()
        found = compare_histories(self._spark, self._places, self._target_places, plan)
        if found.problems:
            # The rows are copied again by the next run, under the same keys.
            run.forget_items(self._log)
        else:
            run.forget(self._log)
        return MigrateResult(
            ok=not found.problems and not done.refused,
            rows=found.rows,
            job_id=run.job_id,
            chunks=done.chunks,
            series=done.series,
            holes=holes,
            bytes=done.bytes,
            refused=done.refused,
            items=len(items),
            items_before=len(items) - len(todo),
            compared=found.compared,
            missing=found.missing,
            differing=found.differing,
            extra=found.extra,
            series_differing=found.series,
            loader_goes_on=goes_on,
        )

    def _check_same(self) -> None:
        check_same(f"{KIND} {self._run.job_id}", self._plan, self._log, self._source, "give another job id")

    def _copy_holes(self) -> int:
        found = self._source.holes(None, EVER.start_ms, EVER.end_ms)
        begins = [
            (lambda done, of=one: (self._target.accept_hole if of.accepted else self._target.write_hole)(of.hole, done))
            for one in found
        ]
        write_all(begins, self._clock)
        return len(found)

    def _write_claims(self) -> bool:
        """Write where a loader of the target begins. False: `chunks` no longer has every record since, so it begins
        at its first record."""
        settings = self._places.log_settings
        with open_topics(self._places.log, prefix=self._places.log_prefix, settings=settings) as topics:
            try:
                check_continuation(self._plan, self._log, topics, self._clock.now_ms())
            except InvalidRequest as error:
                log.warning("a loader of the target begins at the first record", reason=error.reason)
                return False
        write_claims(self._plan, self._target, self._log, self._clock)
        return True
