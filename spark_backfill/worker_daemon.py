"""Worker daemon: the process from which Spark forks its Python workers. It has loaded the modules of a task already.

Spark's daemon imports nothing before it forks, so each new worker imports PySpark and our modules again. Spark gives
workers PySpark as a zip without compiled modules, so each worker also compiles what it imports. A failed task ends its
worker. In a test with 30 Python processes they took 34 s of CPU, and take 18 s with this daemon. Spark's setting
`spark.python.daemon.module` names this module (docs/spark/README.md). Workers that plan a read keep Spark's daemon.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

# Preload all modules that a task needs and that start no thread, because only the forking thread lives on in a worker.
# The import of pyarrow starts a thread of jemalloc, so a worker itself imports pyarrow and our modules that use it.
PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.datasource",
    "tsdb.codec.chunk.chunk",
    "tsdb.history.merge",
    "tsdb.history.open",
    "tsdb.log.kafka.log",
    "tsdb.log.open",
    "tsdb.log.records",
    "tsdb.log.sqlite.log",
    "tsdb.query.history.index",
)


def preload() -> None:
    """Import the modules and exclude their objects from later garbage collections, which would copy shared pages."""
    # numpy's OpenBLAS would start a thread for each core. Spark sets the variable only for workers that run tasks.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    prefer_installed_pyspark(sys.path)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def prefer_installed_pyspark(path: list[str]) -> None:
    """Remove from `path` each pyspark.zip that belongs to an installed PySpark: the folder has the same modules, and
    compiled ones."""
    path[:] = [entry for entry in path if not _is_copy(Path(entry))]


def _is_copy(entry: Path) -> bool:
    package = entry.parents[2] if len(entry.parents) > 3 else entry
    return entry.name == "pyspark.zip" and package.name == "pyspark" and (package / "__init__.py").is_file()


def main() -> None:
    """Run Spark's daemon. Spark calls it with the name of the worker module."""
    preload()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
