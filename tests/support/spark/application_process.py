"""The application that keeps a table, in a separate process, for tests that kill it.

`python -m support.spark.application_process URL PREFIX CATALOG SCRATCH` runs the stream and the table's keeper until it
is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(url: str, prefix: str, catalog: str, scratch: str) -> None:
    from spark_backfill.application.application import Application, ApplicationOptions
    from spark_backfill.application.jobs import JobOptions
    from spark_backfill.pipeline.group_membership import GroupMembership
    from spark_backfill.places import Places
    from support.spark.pipelines import pipeline_options
    from support.spark.spark import test_session
    from tsdb.history.iceberg.catalog import TableSettings
    from tsdb.history.iceberg.keeper import KeeperOptions, TableKeeper
    from tsdb.log.interface import METRICS
    from tsdb.log.open import open_log
    from tsdb.log.settings import LogSettings
    from tsdb.model.clock import SystemClock
    from tsdb.model.meta import MetaSettings
    from tsdb.model.time_set import DEMO

    settings, clock = LogSettings(group_session_s=6.5), SystemClock()  # About the minimum that a broker allows.
    with open_log(url, prefix=prefix, settings=settings) as log, test_session(Path(scratch)) as spark:
        stream = pipeline_options(log, Places(url, prefix), None, trigger_s=0.1)
        jobs = JobOptions(stream.build, MetaSettings(partitions=log.partitions(METRICS), time_set=DEMO))
        keeper = TableKeeper(log, KeeperOptions(TableSettings(catalog), DEMO, interval_s=0.1), clock)
        options = ApplicationOptions(stream, jobs, {})
        Application(spark, log, options, clock, components=[keeper]).run(GroupMembership(log, clock))


if __name__ == "__main__":
    main(*sys.argv[1:])
