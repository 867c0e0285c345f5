"""Session: a SparkSession with the settings that the data source and the jobs rely on, for any master.

`conf` overrides every setting made here, so that a cluster can use its own.
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
from tsdb.ops.threads import new_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)

LOCAL = "local[*]"
STOP_S = 30.0  # The JVM ends in any case when this process does.
PYTHON, DRIVER_PYTHON = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
# Set in a user's own session too: without it a reader with pushed filters fails.
REQUIRED = {"spark.sql.python.filterPushdown.enabled": "true"}
# Switches off Arrow's bounds check and null check of every read, a third of the JVM's work for rows that are runs. They
# are not needed: Spark checks for nulls itself, and the data was written by Arrow in our workers.
_ARROW = "-Darrow.enable_null_check_for_get=false -Darrow.enable_unsafe_memory_access=true"
_DEFAULTS = {
    **REQUIRED,
    "spark.driver.defaultJavaOptions": _ARROW,
    "spark.executor.defaultJavaOptions": _ARROW,
    # Saves a third of the cost of a Python task (docs/spark/README.md).
    "spark.python.unix.domain.socket.enabled": "true",
    # Time the JVM waits for a new worker to connect. The default of 15 s is too short on a busy machine.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Timestamps are UTC, independent of the machine's time zone.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # Heartbeats report the memory of an executor's Python workers too, where /proc can be read.
    "spark.executor.processTreeMetrics.enabled": "true",
    "spark.log.level": "WARN",
}
# Settings of a local master only. Spark must start on a machine whose host name does not resolve, too. The worker
# daemon saves 0.5 s of CPU for each new Python worker. Executors of a cluster may receive our modules after their
# daemon starts.
_ALONE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.daemon.module": "spark_backfill.worker_daemon",
}


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """master: URL of the Spark master. name: name of the application. ui: serve Spark's web pages. conf: settings of
    Spark, which override ours."""

    master: str = LOCAL
    name: str = "tsdb"
    ui: bool = True
    conf: Mapping[str, str] = field(default_factory=dict)


def start_session(options: SessionOptions) -> SparkSession:
    """A new session, or the session that this process has already. Raises ConfigMismatch (no_java, no_pyspark)."""
    require_pyspark()
    require_java()
    from pyspark.sql import SparkSession

    # The driver's interpreter has our packages. Executors with another interpreter set the variable or use `conf`.
    for variable in (PYTHON, DRIVER_PYTHON):
        os.environ.setdefault(variable, sys.executable)
    settings = configuration(options)
    _begin_context(options, settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _begin_context(options: SessionOptions, settings: Mapping[str, str]) -> None:
    """Start the JVM in a separate process session. A SIGTERM to the driver's process group, as `timeout` and shells
    send it, then reaches the driver only, and the driver ends the JVM and its workers in order."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._active_spark_context is not None:
        return
    conf = SparkConf().setMaster(options.master).setAppName(options.name).setAll(list(settings.items()))
    gateway = SparkContext._gateway or launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


@contextmanager
def session(options: SessionOptions) -> Iterator[SparkSession]:
    """Run `start_session` for one block. At its end the session stops, unless it was active before."""
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
    """Stop the session from another thread. A signal may have ended a call of this thread to the JVM halfway, and the
    thread's connection would then read the answer of that call."""
    stopping = new_thread(_stop_now, "spark-stop", spark)
    stopping.start()
    stopping.join(STOP_S)


def _stop_now(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, OSError) as error:
        # The JVM may have received the same signal as this process: systemd signals all processes of a service.
        log.info("the JVM had ended already", error=str(error))


def configuration(options: SessionOptions) -> dict[str, str]:
    """All settings of a new session: defaults, then those of `options`, which win."""
    alone = _ALONE if options.master.startswith("local") else {}
    return {**_DEFAULTS, **alone, "spark.ui.enabled": str(options.ui).lower(), **options.conf}


def require_pyspark() -> None:
    """Raises ConfigMismatch (no_pyspark)."""
    try:
        import pyspark  # noqa: F401  # only to see that it is installed
    except ImportError as error:
        raise ConfigMismatch(
            f"PySpark is not installed ({error}): install the extra, kafka-tsdb[spark]", reason="no_pyspark"
        ) from None


def require_java(environment: Mapping[str, str] = os.environ) -> Path:
    """The `java` that Spark will run. Raises ConfigMismatch (no_java) when there is no Java."""
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
