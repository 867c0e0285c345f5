"""Workers: the Python processes that Spark keeps from task to task."""

from __future__ import annotations

import gc


def keep_loaded() -> None:
    """At the end of a task: what the worker's first task has loaded is never looked at for garbage again.

    PySpark collects garbage after every task; with numba, pyarrow and PySpark itself in memory, 200,000 objects, that
    takes 90 ms of CPU each time, more than many a task. What is garbage goes first.
    """
    if not gc.get_freeze_count() and _in_task():
        gc.collect()
        gc.freeze()


def _in_task() -> bool:
    from pyspark import TaskContext  # Not above: its import takes longer than what imports us may.

    return TaskContext.get() is not None
