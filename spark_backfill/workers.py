"""Workers: the Python processes that Spark reuses from task to task."""

from __future__ import annotations

import gc
import sys

UNFROZEN_OBJECTS_MAX = 5_000  # Collecting 5,000 objects takes 2 ms.


def keep_loaded() -> None:
    """At the end of a task, exclude all objects loaded so far from later garbage collections.

    PySpark collects garbage after every task. With numba, pyarrow and PySpark in memory, 200,000 objects, each
    collection takes 90 ms of CPU, more than many tasks. Garbage is collected before the freeze. A worker loads more
    modules with each new kind of task, so the freeze is repeated when more than UNFROZEN_OBJECTS_MAX objects are new.
    """
    if _in_task() and len(gc.get_objects()) > UNFROZEN_OBJECTS_MAX:
        gc.collect()
        gc.freeze()


def _in_task() -> bool:
    pyspark = sys.modules.get("pyspark")  # A task has imported pyspark. Other processes do not need it.
    return pyspark is not None and pyspark.TaskContext.get() is not None
