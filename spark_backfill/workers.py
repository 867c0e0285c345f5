"""Workers: the Python processes that Spark keeps from task to task."""

from __future__ import annotations

import gc

LOOKED_AT_MAX = 5_000  # Objects: 2 ms of collection.


def keep_loaded() -> None:
    """At the end of a task: what tasks have loaded is never looked at for garbage again.

    PySpark collects garbage after every task; with numba, pyarrow and PySpark itself in memory, 200,000 objects, that
    takes 90 ms of CPU each time, more than many a task. What is garbage goes first. A worker loads more with each kind
    of task that it meets, so it is looked at anew whenever many objects have come.
    """
    if len(gc.get_objects()) > LOOKED_AT_MAX and _in_task():
        gc.collect()
        gc.freeze()


def _in_task() -> bool:
    from pyspark import TaskContext  # Not above: its import takes longer than what imports us may.

    return TaskContext.get() is not None
