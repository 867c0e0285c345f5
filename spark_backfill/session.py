"""Session: a SparkSession set up as the data source and the jobs need it, on any master.

What is set here is what they rely on; `conf` has the last word, so that a cluster's own way of doing things stays
possible.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tsdb.model.errors import ConfigMismatch
from tsdb.ops.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)

LOCAL = "local[*]"
PYTHON, DRIVER_PYTHON = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
# Everywhere the same, for whatever session a user brings: a reader with pushed filters fails without the first.
REQUIRED = {"spark.sql.python.filterPushdown.enabled": "true"}
# Without Arrow's own checks of every read, of its place and for null, a third of what the JVM does for runs: Spark asks
# for nulls itself, and what it reads was written by Arrow in our workers.
_ARROW = "-Darrow.enable_null_check_for_get=false -Darrow.enable_unsafe_memory_access=true"
_DEFAULTS = {
    **REQUIRED,
    "spark.driver.defaultJavaOptions": _ARROW,
    "spark.executor.defaultJavaOptions": _ARROW,
    # A third of the cost of a Python task (docs/spark.md).
    "spark.python.unix.domain.socket.enabled": "true",
    # How long the JVM waits for a worker that has just been started: 15 s are few for a machine with work to do.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Timestamps are UTC, whatever the machine thinks.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
# A machine without a name that resolves to itself is no reason to fail.
_ALONE = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """master: where tasks run. name: of the application. ui: whether Spark's own pages are served. conf: Spark's own
    settings, over ours."""

    master: str = LOCAL
    name: str = "tsdb"
    ui: bool = True
    conf: Mapping[str, str] = field(default_factory=dict)


def start_session(options: SessionOptions) -> SparkSession:
    """A new session, or this process' own when it has one. Raises ConfigMismatch (no_java, no_pyspark)."""
    require_pyspark()
    require_java()
    from pyspark.sql import SparkSession

    # The interpreter of the driver has our packages; where executors have another, the variable or conf says so.
    for variable in (PYTHON, DRIVER_PYTHON):
        os.environ.setdefault(variable, sys.executable)
    settings = configuration(options)
    _begin_context(options, settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _begin_context(options: SessionOptions, settings: Mapping[str, str]) -> None:
    """The JVM gets a session of its own. A SIGTERM to the driver's process group, as `timeout` and shells send it, then
    reaches the driver alone, which ends the JVM and its workers in order."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._active_spark_context is not None:
        return
    conf = SparkConf().setMaster(options.master).setAppName(options.name).setAll(list(settings.items()))
    gateway = SparkContext._gateway or launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


@contextmanager
def session(options: SessionOptions) -> Iterator[SparkSession]:
    """start_session for one block; stopped after it, unless it was there before."""
    require_pyspark()
    from pyspark.sql import SparkSession

    borrowed = SparkSession.getActiveSession() is not None
    spark = start_session(options)
    try:
        yield spark
    finally:
        if not borrowed:
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, OSError) as error:
        # Whatever ended this process may have ended the JVM too, as systemd does with all of a service.
        log.info("the JVM had ended already", error=str(error))


def configuration(options: SessionOptions) -> dict[str, str]:
    """What the session is started with."""
    alone = _ALONE if options.master.startswith("local") else {}
    return {**_DEFAULTS, **alone, "spark.ui.enabled": str(options.ui).lower(), **options.conf}


def require_pyspark() -> None:
    """Raises ConfigMismatch (no_pyspark)."""
    try:
        import pyspark  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise ConfigMismatch(
            f"PySpark is not installed ({error}): install the extra, kafka-tsdb[spark]", reason="no_pyspark"
        ) from None


def require_java(environment: Mapping[str, str] = os.environ) -> Path:
    """The `java` that Spark will run. Raises ConfigMismatch (no_java) when there is none."""
    home = environment.get("JAVA_HOME", "")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise ConfigMismatch(f"JAVA_HOME is {home}, but {java} is not there", reason="no_java")
        return java
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        raise ConfigMismatch(
            "Spark needs a Java of version 17 or newer: set JAVA_HOME or put `java` on PATH", reason="no_java"
        )
    return Path(found)
