"""Functions: run the jobs in a Spark session of the user's, for notebooks and schedulers.

Each function checks its arguments, then log and history as its command does, and only then starts tasks. The session is
afterwards as it was before. Errors are TsdbErrors. Modules of a job are imported when it runs.

start, end: [start, end) of sample times. A time is a datetime or date (UTC where it has no zone), text in ISO 8601 (the
same), or an int: ms since the epoch. A duration is a timedelta.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, overload

from spark_backfill.arguments import count, duration_ms, pack_ids, time_ms
from spark_backfill.user_session import job_session
from tsdb.model.times import Time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.installation import Installation
    from spark_backfill.result import (
        DownsampleResult,
        ExportResult,
        ImportResult,
        MergeLatePlan,
        MergeLateResult,
        MigrateResult,
        RebuildResult,
        RulesResult,
        VerifyResult,
    )

HOUR = timedelta(hours=1)
Path = str | os.PathLike[str]


def import_files(
    spark: SparkSession,
    installation: Installation,
    paths: Path | Sequence[Path],
    *,
    format: str = "parquet",
    labels: str = "labels",
    label_columns: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    time: str = "ts_ms",
    time_unit: str = "ms",
    value: str = "value",
    metrics: Sequence[str] = (),
    job_id: str | None = None,
    rejects: Path = "",
    allow_rejects: bool = False,
    wait: timedelta | None = HOUR / 6,
) -> ImportResult:
    """Import files into history: samples older than the shortest hold and a day. ok: no row was refused.

    paths: files or folders, as Spark paths. format: parquet, csv, jsonl, or prometheus (blocks). labels: the column
    with all labels; empty: none. label_columns: column by label. constants: value by label. time, value: columns.
    time_unit: ms, s, us, ns or iso. metrics: columns that each hold the values of one metric, in place of value.

    job_id: names this input. Another run with it writes the same keys, so a task that is tried again should give one;
    without it every call is a new import. rejects: folder for refused rows. allow_rejects: the result is ok in spite of
    them. wait: longest wait for the loader; None: no wait.

    Raises InvalidRequest (bad_layout, no_input, nothing_to_import, bad_job_id), ConfigMismatch (other_import),
    WrongTopic (topic_recreated), Unavailable (loader_behind); a note of the error names the job id to run again.
    """
    from spark_backfill.jobs.imports.job import ImportOptions
    from spark_backfill.jobs.imports.job import import_files as job
    from spark_backfill.writing.import_run import check_job_id, new_job_id
    from tsdb.model.import_layout import ImportLayout

    layout = ImportLayout(
        format,
        labels,
        tuple((label_columns or {}).items()),
        tuple((constants or {}).items()),
        time,
        time_unit,
        value,
        tuple(metrics),
    )
    options = ImportOptions(
        new_job_id() if job_id is None else check_job_id(job_id),
        rejects=os.fspath(rejects),
        allow_rejects=allow_rejects,
        wait_s=None if wait is None else duration_ms("wait", wait) / 1000,
    )
    files = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    with job_session(spark) as session:
        shared = installation.checked()
        try:
            return job(session, files, layout, installation.places, shared, options)
        except Exception as error:
            error.add_note(f"to run the same import again: job_id={options.job_id!r}")
            raise


def export(
    spark: SparkSession,
    installation: Installation,
    folder: Path,
    selector: str = "",
    *,
    start: Time | None = None,
    end: Time | None = None,
    overwrite: bool = False,
    partial: bool = False,
    allow_holes: bool = False,
    splits: int = 32,
) -> ExportResult:
    """Write history as Parquet, a folder for each day: labels as JSON text, ts_ms, value.

    selector: the series; empty: all. Without an end the export stops where history is no longer complete. overwrite:
    replace the folder. partial: export even when history does not have the whole range. allow_holes: export in spite of
    named losses. splits: approximate number of tasks that read.

    Raises InvalidRequest (folder_exists, bad_selector, bad_range), Unavailable (history_behind).
    """
    from spark_backfill.jobs.exports.job import ExportOptions
    from spark_backfill.jobs.exports.job import export as job
    from spark_backfill.source.options import TimeSpan, check_span
    from tsdb.selector.selectors import parse_selector

    tasks = count("splits", splits)
    span = check_span(TimeSpan(_optional("start", start), _optional("end", end)))
    if selector:
        parse_selector(selector)
    options = ExportOptions(os.fspath(folder), selector, span, overwrite, partial, allow_holes, tasks)
    with job_session(spark) as session:
        installation.checked(history=True)
        return job(session, installation.places, options)


@overload
def merge_late(
    spark: SparkSession,
    installation: Installation,
    *,
    apply: Literal[True],
    min_fragments: int = ...,
    older_than: timedelta = ...,
    delete_after: timedelta = ...,
    start: Time | None = ...,
    end: Time | None = ...,
    loader_timeout: timedelta = ...,
) -> MergeLateResult: ...
@overload
def merge_late(
    spark: SparkSession,
    installation: Installation,
    *,
    apply: Literal[False] = ...,
    min_fragments: int = ...,
    older_than: timedelta = ...,
    delete_after: timedelta = ...,
    start: Time | None = ...,
    end: Time | None = ...,
    loader_timeout: timedelta = ...,
) -> MergeLatePlan: ...
def merge_late(
    spark: SparkSession,
    installation: Installation,
    *,
    apply: bool = False,
    min_fragments: int = 8,
    older_than: timedelta = 7 * 24 * HOUR,
    delete_after: timedelta = HOUR,
    start: Time | None = None,
    end: Time | None = None,
    loader_timeout: timedelta = HOUR / 4,
) -> MergeLatePlan | MergeLateResult:
    """Fold windows of many fragments into one fragment each, and delete the rows that earlier folds cover.

    apply: write; without it the plan is returned. min_fragments: fold a pack's window that has more. older_than: fold
    any window that ended this long ago. delete_after: time from the check of a fold to the deletion of the rows that it
    covers; no read may take longer. Without start and end all of history is folded. ok: nothing was refused.

    Raises Unavailable (loader_behind, not_read_back): a later run continues the work then.

    """
    from spark_backfill.jobs.merge_late.job import MergeLateOptions
    from spark_backfill.jobs.merge_late.job import merge_late as job

    times = {"start_ms": _optional("start", start), "end_ms": _optional("end", end)}
    options = MergeLateOptions(
        apply,
        count("min_fragments", min_fragments),
        duration_ms("older_than", older_than),
        duration_ms("delete_after", delete_after),
        loader_timeout_ms=duration_ms("loader_timeout", loader_timeout),
        **{name: ms for name, ms in times.items() if ms is not None},
    )
    with job_session(spark) as session:
        return job(session, installation.places, installation.checked(history=True), options)


def downsample(
    spark: SparkSession,
    installation: Installation,
    *,
    start: Time | None = None,
    dry_run: bool = False,
    again: bool = False,
    loader_timeout: timedelta = HOUR / 4,
) -> DownsampleResult:
    """Make series of 5 minutes and of an hour from history, for windows that are new or got late data.

    start: the start of the range; None: all of history. dry_run: only count the windows. again: make all windows again,
    as after an import that ran beside another run. loader_timeout: longest wait for chunk stage and loader, before and
    after. ok: no window is corrupt.

    Raises ConfigMismatch (time_set), Unavailable (loader_behind, history_behind).
    """
    from spark_backfill.jobs.downsample.job import DownsampleOptions
    from spark_backfill.jobs.downsample.job import downsample as job

    options = DownsampleOptions(
        _optional("start", start), dry_run, again, duration_ms("loader_timeout", loader_timeout)
    )
    with job_session(spark) as session:
        return job(session, installation.places, installation.checked(history=True), options)


def evaluate_rules(
    spark: SparkSession,
    installation: Installation,
    rules: Path | Sequence[Path],
    start: Time,
    end: Time,
    *,
    interval: timedelta = HOUR / 60,
    query_offset: timedelta = timedelta(0),
    lookback: timedelta = HOUR / 12,
    features: Sequence[str] = (),
    series_max: int = 100_000,
    external_labels: Mapping[str, str] | None = None,
    external_url: str = "",
    dry_run: bool = False,
    allow_holes: bool = False,
    job_id: str | None = None,
    wait: timedelta = HOUR / 4,
    tasks: int | None = None,
) -> RulesResult:
    """Evaluate rule files over history, and write the samples that differ from the stored ones, as a ruler would have
    written them. ok: no rule failed.

    rules: files of the driver. start, end: older than the shortest hold and a day. interval, query_offset: defaults of
    groups. lookback, features, series_max, external_labels, external_url: as of the ruler. dry_run: count
    the samples that differ, and write nothing. allow_holes: evaluate in spite of named losses. job_id: another run with
    it writes the same keys. wait: longest wait for chunk stage and loader, before and after. tasks: number of tasks.

    Raises InvalidRequest (bad_document, bad_range, too_recent, rule_circle, rule_reads_ahead, too_many_components,
    bad_job_id), ConfigMismatch (other_import), HoleInRange, Unavailable (history_behind, loader_behind); a note of the
    error names the job id to run again.
    """
    from pathlib import Path as File

    from spark_backfill.jobs.rules.job import RulesOptions
    from spark_backfill.jobs.rules.job import evaluate_rules as job
    from spark_backfill.jobs.rules.work import RuleTexts
    from spark_backfill.writing.import_run import check_job_id, new_job_id

    files = [File(path) for path in ([rules] if isinstance(rules, str | os.PathLike) else rules)]
    texts = RuleTexts(
        tuple((str(file), file.read_bytes()) for file in files),
        tuple(features),
        duration_ms("interval", interval),
        duration_ms("query_offset", query_offset),
        duration_ms("lookback", lookback),
        count("series_max", series_max),
        tuple((external_labels or {}).items()),
        external_url,
    )
    options = RulesOptions(
        time_ms("start", start),
        time_ms("end", end),
        new_job_id() if job_id is None else check_job_id(job_id),
        dry_run,
        allow_holes,
        duration_ms("wait", wait) / 1000,
        None if tasks is None else count("tasks", tasks),
    )
    with job_session(spark) as session:
        shared = installation.checked(history=True)
        try:
            return job(session, texts, installation.places, shared, options)
        except Exception as error:
            error.add_note(f"to run the same evaluation again: job_id={options.job_id!r}")
            raise


def rebuild(
    spark: SparkSession,
    installation: Installation,
    start: Time,
    end: Time,
    *,
    packs: Collection[str] | None = None,
    job_id: str | None = None,
) -> RebuildResult:
    """Build the chunks of whole windows from the log again, base and late, and write them under their existing keys.

    packs: only these, as 16 hexadecimal digits; no window marker is written then, because it counts all packs. job_id:
    the id of an interrupted run continues that run.

    Windows that the log no longer has whole are copied from history. ok: no row of history was refused.

    Raises InvalidRequest (not_whole_windows, range_empty, too_recent, bad_job_id), LostOffsets (before_retention)
    without a history, Unavailable (history_behind, history_replaced), ConfigMismatch (other_rebuild), WrongTopic
    (topic_recreated); a note of the error names the job id to run again.
    """
    from spark_backfill.building.plan import range_of
    from spark_backfill.jobs.rebuild.job import rebuild as job
    from spark_backfill.writing.import_run import check_job_id, new_job_id

    run_id = new_job_id() if job_id is None else check_job_id(job_id)

    start_ms, end_ms, chosen = time_ms("start", start), time_ms("end", end), pack_ids(packs)
    with job_session(spark) as session:
        shared = installation.checked()
        windows = range_of(start_ms, end_ms, shared.time_set.window_ms)
        try:
            return job(session, installation.build_options(shared), windows, chosen, run_id)
        except Exception as error:
            error.add_note(f"to continue the same rebuild: job_id={run_id!r}")
            raise


def verify(
    spark: SparkSession,
    installation: Installation,
    start: Time,
    end: Time,
    *,
    packs: Collection[str] | None = None,
    history: bool = True,
    repair: bool = False,
    wait: timedelta = HOUR / 6,
) -> VerifyResult:
    """Compare the log with `chunks` and history in whole windows. ok: no difference; with a repair, none after it.

    packs: as in `rebuild`. history: compare history too, where the installation has one. repair: write differing chunks
    again, wait for the loader at most `wait`, and compare again.

    Raises as `rebuild`, and Unavailable (not_started, not_loaded, loader_behind).
    """
    from spark_backfill.building.plan import range_of
    from spark_backfill.jobs.verify.job import VerifyOptions
    from spark_backfill.jobs.verify.job import verify as job

    start_ms, end_ms, chosen = time_ms("start", start), time_ms("end", end), pack_ids(packs)
    wait_s = duration_ms("wait", wait) / 1000
    with job_session(spark) as session:
        shared = installation.checked()
        options = VerifyOptions(
            range_of(start_ms, end_ms, shared.time_set.window_ms),
            chosen,
            history=history and bool(installation.places.history),
            mend=repair,
            loader_timeout_s=wait_s,
        )
        return job(session, installation.build_options(shared), options)


def migrate(
    spark: SparkSession, installation: Installation, to: str, *, job_id: str | None = None, group: str = ""
) -> MigrateResult:
    """Copy all of history to the one at URL `to`, and compare both. ok: both have the same rows.

    to: an empty history that `tsdb history create` made for this log; the connection settings are those of
    `installation`. job_id: the id of an interrupted run continues that run. group: the group of the loaders of
    `installation`, if it is not the default.

    Raises InvalidRequest (same_history, history_not_empty, history_replaced, other_topic, bad_job_id), ConfigMismatch
    (history_url, history_schema, other_migration), WrongTopic (topic_recreated); a note of the error
    names the job id to run again.
    """
    from spark_backfill.jobs.migrate.job import MigrateOptions
    from spark_backfill.jobs.migrate.job import migrate as job
    from spark_backfill.writing.import_run import check_job_id, new_job_id
    from tsdb.history.loader.loader import GROUP

    run_id = new_job_id() if job_id is None else check_job_id(job_id)
    with job_session(spark) as session:
        shared = installation.checked(history=True)
        try:
            return job(session, installation.places, shared, MigrateOptions(to, group or GROUP, run_id))
        except Exception as error:
            error.add_note(f"to continue the same migration: job_id={run_id!r}")
            raise


def _optional(name: str, time: Time | None) -> int | None:
    return None if time is None else time_ms(name, time)
