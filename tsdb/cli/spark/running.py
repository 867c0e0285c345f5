"""Runs a job's command: session, progress, result, and after a failure the command for a rerun."""

from __future__ import annotations

import functools
import inspect
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table, row_cells
from tsdb.config import CommonSettings
from tsdb.config.load import SPARK_SETTINGS
from tsdb.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.installation import Installation
    from spark_backfill.result import JobResult

Master = Annotated[str, typer.Option("--master", help="The Spark master that runs the tasks.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class CommonJobOptions:
    """Values of the options that all jobs have. settings: those of log and history."""

    settings: CommonSettings
    master: str
    conf: dict[str, str]
    output: str

    @property
    def installation(self) -> Installation:
        """Log and history. Commands check them before a session starts."""
        from spark_backfill.installation import Installation

        return Installation(self.settings)

    def run(
        self, name: str, job: Callable[[SparkSession], JobResult], *, rerun: str = "", progress: bool = True
    ) -> None:
        """Run a job in a new session and print its result. Exit code 1 when the job is not ok.

        rerun: further flags that a rerun after a failure needs. progress: show it; False for an endless job.
        """
        from spark_backfill.cluster import cluster_watch
        from spark_backfill.failures import translate_spark_errors
        from spark_backfill.session import SessionOptions, session
        from tsdb.cli.spark.progress import task_progress
        from tsdb.ops.logs import configure_logging

        configure_logging(json=self.settings.log_format == "json", level=self.settings.log_level)
        began = time.monotonic()
        try:
            with (
                _sigterm_ends() if progress else nullcontext(),
                translate_spark_errors(),
                session(SessionOptions(self.master, f"tsdb {name}", conf=self.conf)) as spark,
                cluster_watch(spark) as watch,
                task_progress(spark, name) if progress else nullcontext(),
            ):
                if spark.sparkContext.uiWebUrl:
                    note(f"{name}: Spark's pages are at {spark.sparkContext.uiWebUrl}")
                result = job(spark)
                watch.look()
                facts = watch.facts()
        except InvalidRequest:
            raise  # A rerun would be refused too.
        except BaseException as error:
            note(f"to run it again: {' '.join(('tsdb spark', name, rerun)).strip()}, with all other options unchanged")
            if isinstance(error, SystemExit):
                seconds = round(time.monotonic() - began, 3)
                self._show({"job": name, "ok": False, "reason": "terminated", "seconds": seconds})
            raise
        self._show({**result.as_dict(), "seconds": round(time.monotonic() - began, 3), **facts})
        if not result.ok:
            raise typer.Exit(1)

    def _show(self, result: dict[str, Any]) -> None:
        if self.output == "json":
            print_json(result)
            return
        rows = result.pop("rows", [])
        if rows:
            print_table(tuple(rows[0]), map(row_cells, rows))
        print_table(("figure", "value"), ((name, value) for name, value in result.items() if value is not None))


@contextmanager
def _sigterm_ends() -> Iterator[None]:
    """In the block SIGTERM raises SystemExit with the exit code of the signal, so that the session ends in order."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def spark_job(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates the command of a job: replaces its first parameter, CommonJobOptions, by the options of all jobs."""

    @functools.wraps(command)
    def with_run(
        settings: CommonSettings,
        *,
        master: str = "local[*]",
        conf: list[str] | None = None,
        output: str = "table",
        **own: Any,
    ) -> None:
        command(CommonJobOptions(settings, master, spark_conf(conf), output), **own)

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
