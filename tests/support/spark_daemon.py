"""Spark's Python daemon, `spark.python.daemon.module`, with what tasks need in memory before it forks any worker.

A worker of Spark's own daemon imports everything anew, over a second of CPU, and tests that kill or fail their workers
need many. What is imported here may start threads of its own, which a fork leaves behind: those of numpy and Arrow, and
both begin anew in the child.
"""

from __future__ import annotations

import sys

from pyspark.daemon import manager

WORKER = "pyspark.worker"  # Others are planners: Spark forks few of them.


def load() -> None:
    """Modules that workers import, and compiled kernels."""
    import pyspark.worker  # noqa: F401

    import spark_backfill.rebuild.job  # noqa: F401
    from tsdb.chunks.warm_up import warm_up

    warm_up()


if __name__ == "__main__":
    if sys.argv[1:] == [WORKER]:
        load()
    manager()
