"""User session: a job in a Spark session of the user's, which afterwards is as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tsdb.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"
# A job must read the same rows from the same files in any session: times are UTC, and a bad cast is an error or a null
# where the job says so.
SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}


@contextmanager
def job_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session for one job over the context of `spark`, with SETTINGS and without the SQL settings of `spark`.

    Settings of file systems are copied. Errors of Spark become TsdbErrors. Raises InvalidRequest (bad_session) when
    `spark` is not a running session, or is a session of Spark Connect, which cannot start our tasks.
    """
    from spark_backfill.failures import translate_spark_errors
    from spark_backfill.session import require_pyspark

    require_pyspark()
    context = _checked(spark)
    with translate_spark_errors(), _unchanged(spark, context):
        session = spark.newSession()
        there = session.conf.getAll
        # Keys of Spark itself belong to the context or to SQL, or cannot be set in a session.
        others = {key: value for key, value in spark.conf.getAll.items() if not key.startswith("spark.")}
        for key, value in {**others, **SETTINGS}.items():
            if there.get(key) != value:
                session.conf.set(key, value)
        # Spark looks up data sources in the active session.
        _activate(session)
        yield session


def _checked(spark: SparkSession) -> SparkContext:
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession):
        raise InvalidRequest(
            f"spark is a {type(spark).__module__}.{type(spark).__name__}; want a pyspark.sql.SparkSession with its"
            " driver in this process, as Spark Connect has none",
            reason="bad_session",
        )
    context = spark.sparkContext
    if context._jsc is None:
        raise InvalidRequest("the Spark session is stopped: start a new one", reason="bad_session")
    return context


@contextmanager
def _unchanged(spark: SparkSession, context: SparkContext) -> Iterator[None]:
    """Restore the description of jobs and the active session of this thread, which a job changes."""
    description, active = context.getLocalProperty(DESCRIPTION), spark.getActiveSession()
    try:
        yield
    finally:
        if context._jsc is not None:
            context.setLocalProperty(DESCRIPTION, description)  # type: ignore[arg-type]  # None removes it
            _activate(active or spark)


def _activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread. Runs nothing; Spark has no function for it."""
    spark.createDataFrame([], "none int")
