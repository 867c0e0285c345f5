"""Runs a job's command: session, progress, summary, and after a failure the command for a rerun."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.spark.opening import SPARK_SETTINGS, checked
from tsdb.cli.terminal.output import note, print_json, print_table, row_cells
from tsdb.config import CommonSettings
from tsdb.model.errors import InvalidRequest
from tsdb.model.meta import MetaSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.places import Places
    from spark_backfill.summary import JobSummary

Master = Annotated[str, typer.Option("--master", help="The Spark master that runs the tasks.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class JobRun:
    """Values of the options common to all jobs. settings: those of log and history."""

    settings: CommonSettings
    master: str
    conf: dict[str, str]
    output: str

    @property
    def places(self) -> Places:
        """Access to log and history for the tasks."""
        from spark_backfill.places import Places
        from tsdb.roles.log import log_settings

        settings = self.settings
        return Places(
            settings.log,
            settings.log_prefix,
            settings.history,
            log_settings(settings),
            settings.history_settings(),
        )

    def checked(self) -> MetaSettings:
        """The settings that all processes share. Raises ConfigMismatch, Unavailable, before a session starts."""
        return checked(self.settings)

    def run(
        self, name: str, job: Callable[[SparkSession], JobSummary], *, rerun: str = "", progress: bool = True
    ) -> None:
        """Run a job in a new session and print its summary. Exit code 1 when the job is not ok.

        rerun: further flags that a rerun after a failure needs. progress: show it; False for an endless job.
        """
        from spark_backfill.failures import translate_spark_errors
        from spark_backfill.session import SessionOptions, session
        from tsdb.cli.spark.progress import task_progress
        from tsdb.ops.logs import configure_logging

        configure_logging(json=self.settings.log_format == "json", level=self.settings.log_level)
        began = time.monotonic()
        try:
            with (
                translate_spark_errors(),
                session(SessionOptions(self.master, f"tsdb {name}", conf=self.conf)) as spark,
                task_progress(spark, name) if progress else nullcontext(),
            ):
                summary = job(spark)
        except InvalidRequest:
            raise  # A rerun would be refused too.
        except BaseException:
            note(f"to run it again: {' '.join(('tsdb spark', name, rerun)).strip()}, with all other options unchanged")
            raise
        self._show({**summary.as_dict(), "seconds": round(time.monotonic() - began, 3)})
        if not summary.ok:
            raise typer.Exit(1)

    def _show(self, summary: dict[str, Any]) -> None:
        if self.output == "json":
            print_json(summary)
            return
        rows = summary.pop("rows", [])
        if rows:
            print_table(tuple(rows[0]), map(row_cells, rows))
        print_table(("figure", "value"), ((name, value) for name, value in summary.items() if value is not None))


def spark_job(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator of a job's command: replaces its first parameter, a JobRun, by the options common to all jobs."""

    @functools.wraps(command)
    def with_run(
        settings: CommonSettings,
        *,
        master: str = "local[*]",
        conf: list[str] | None = None,
        output: str = "table",
        **own: Any,
    ) -> None:
        command(JobRun(settings, master, spark_conf(conf), output), **own)

    settings, *common = inspect.signature(_common, eval_str=True).parameters.values()
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    with_run.__signature__ = inspect.Signature([settings, *keywords, *common])  # type: ignore[attr-defined]
    return with_settings(CommonSettings, only=SPARK_SETTINGS)(with_run)


def _common(
    settings: CommonSettings, *, master: Master = "local[*]", conf: Conf = None, output: TableOrJson = "table"
) -> None:
    """Its signature declares the options of every job."""


def spark_conf(given: list[str] | None) -> dict[str, str]:
    """Spark settings from the values of --conf. Raises BadParameter."""
    return dict(map(_pair, given or []))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"--conf {text!r} is not KEY=VALUE")
    return key, value
