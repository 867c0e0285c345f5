"""Provides one SparkSession for all Spark tests, and Places: a log and a history with their set-up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark_backfill.places import Places
from spark_backfill.session import SessionOptions, session
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory

ROOT = Path(__file__).resolve().parents[3]
TASKS_AT_ONCE = 2
# A failed task is tried again, as on a cluster.
MASTER = f"local[{TASKS_AT_ONCE},4]"
CONF = {
    "spark.driver.memory": "768m",
    # For small data an optimising compiler takes longer than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Nor does code made for each query, which javac's like compiles. Commands and examples run with it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "8",
    "spark.default.parallelism": "8",
    # Workers import what tests hand to tasks.
    "spark.executorEnv.PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
    "spark.log.level": "ERROR",
}


@contextmanager
def test_session(scratch: Path) -> Iterator[SparkSession]:
    """A small session without pages; its files are in `scratch`."""
    conf = {**CONF, "spark.local.dir": str(scratch / "local"), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(_home(scratch / "pyspark")))
        with session(SessionOptions(MASTER, "tests", ui=False, conf=conf)) as spark:
            yield spark


def _home(made: Path) -> Path:
    """A home of Spark whose `pyspark.zip` is the folder of the installed packages.

    In the zip PySpark is not compiled. A process that plans a read or a stream needs 0.9 s of CPU to start with it, and
    0.3 s with the folder.
    """
    given = Path(pyspark.__file__).parent
    (made / "python" / "lib").mkdir(parents=True)
    for folder in (Path(), Path("python"), Path("python/lib")):
        for entry in (given / folder).iterdir():
            if not (made / folder / entry.name).exists() and entry.name != "pyspark.zip":
                (made / folder / entry.name).symlink_to(entry)
    (made / "python" / "lib" / "pyspark.zip").symlink_to(given.parent)
    return made


def places(log: LogFactory | None = None, history: HistoryFactory | None = None) -> Places:
    """Where tasks find the log and history of a test."""
    return Places(
        log.url if log else "",
        log.prefix if log else "",
        history.url if history else "",
    )
