"""`tsdb spark jobs` shows the scheduled jobs of a log, from anywhere with access to the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.config import CommonSettings
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import time_text

if TYPE_CHECKING:
    from spark_backfill.application.journal import Journal, NewestRecord
    from spark_backfill.application.runs import JobRun

SETTINGS = (
    *("config", "log", "log_prefix"),
    *(name for name in CommonSettings.model_fields if name.startswith("kafka_")),
)
Action = Literal["list", "pause", "resume", "run"]
COLUMNS = ("kind", "schedule", "last run", "took", "result", "next due", "state", "error")


@with_settings(CommonSettings, only=SETTINGS)
def jobs(
    settings: CommonSettings,
    action: Annotated[Action, typer.Argument(help="Action; without it the jobs are listed.")] = "list",
    kind: Annotated[
        Literal["merge-late", "downsample", "verify"] | None, typer.Argument(help="The kind of job, except with list.")
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """List the scheduled jobs of `tsdb spark scheduler` or `tsdb spark run`; pause one, resume one, or run one now.

    A pause ends no run that has begun. `run` begins a run also during a pause; without an application it begins when
    one starts.
    """
    if (kind is None) != (action == "list"):
        raise typer.BadParameter("list takes no kind" if action == "list" else f"{action} needs a kind of job")
    with _opened(settings) as journal:
        if kind is None:
            _list(journal, output)
        else:
            _change(journal, action, kind, output)


@contextmanager
def _opened(settings: CommonSettings) -> Iterator[Journal]:
    from spark_backfill.application.journal import Journal
    from tsdb.log.open import open_log
    from tsdb.model.clock import SystemClock
    from tsdb.roles.log import log_settings

    # The application holds the writer lock of an embedded log.
    access = replace(log_settings(settings), embedded_guest=True)
    with open_log(settings.log, prefix=settings.log_prefix, settings=access) as log:
        yield Journal(log, SystemClock())


def _change(journal: Journal, action: Action, kind: str, output: str) -> None:
    journal.refresh()
    seen = _live(journal)
    if seen is not None and kind not in seen.record.plans:
        raise InvalidRequest(
            f"the application does not have the job {kind}: it needs a history, and downsample windows of whole hours",
            reason="unknown_job",
        )
    if action == "run":
        journal.request(kind)
    else:
        journal.pause(kind, action == "pause")
    if output == "json":
        print_json({"kind": kind, "action": action, "live": seen is not None})
    elif seen is None:
        note(f"{action} {kind}: recorded; no application runs, so it has its effect when one starts")
    else:
        note(f"{action} {kind}: recorded; the application follows within a second")


def _live(journal: Journal) -> NewestRecord | None:
    """The application that runs, if one does."""
    from tsdb.model.clock import SystemClock

    seen = journal.view.application
    return seen if seen is not None and seen.is_live(SystemClock().now_ms()) else None


def _list(journal: Journal, output: str) -> None:
    journal.refresh()
    seen, live = journal.view.application, _live(journal) is not None
    rows = [_row(journal, kind, live) for kind in journal.view.states]
    if output == "json":
        print_json({"application": _application(seen, live), "jobs": rows})
        return
    print_table(COLUMNS, map(_cells, rows), right=("took",))
    if not live:
        note("no application runs: start `tsdb spark scheduler`, or `tsdb spark run`")


def _application(seen: NewestRecord | None, live: bool) -> dict[str, Any] | None:
    return None if seen is None else {"live": live, "since_ms": seen.record.since_ms, "seen_ms": seen.seen_ms}


def _row(journal: Journal, kind: str, live: bool) -> dict[str, Any]:
    from spark_backfill.application.health import job_health
    from spark_backfill.application.job_records import Planned

    state, seen = journal.view.states[kind], journal.view.application
    plan = seen.record.plans.get(kind, Planned()) if seen else Planned()
    runs = state.runs
    is_requested = state.requested > (runs.requests_done if runs else 0)
    return {
        "kind": kind,
        "schedule": plan.cron or None,
        **job_health(state, plan.next_due_ms, live=live),
        "requested": is_requested,
        "last_ok_ms": runs.last_ok.end_ms if runs and runs.last_ok else None,
        "runs": [_run(run) for run in runs.runs] if runs else [],
    }


def _run(run: JobRun) -> dict[str, Any]:
    outcome = run.outcome
    fields = {} if outcome is None else {**asdict(outcome), "result": outcome.result.value}
    return {"begin_ms": run.begin_ms, "cause": run.cause.value, "end_ms": run.end_ms, **fields}


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    took_ms = row["took_ms"]
    return (
        row["kind"],
        row["schedule"],
        time_text(row["last_begin_ms"]),
        None if took_ms is None else f"{took_ms / 1000:.1f} s",
        row["result"],
        "now" if row["requested"] else time_text(row["next_due_ms"]),
        row["state"],
        row["reason"],
    )
