"""The worker daemon loads modules before it forks and starts no thread, which a forked worker would not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_backfill.worker_daemon import prefer_installed_pyspark

LOADED = """
import os, sys
from spark_backfill.worker_daemon import preload
preload()
threads = len(os.listdir("/proc/self/task"))
print(threads, "pyarrow" in sys.modules, "tsdb.codec.chunk.chunk" in sys.modules, "pyspark.worker" in sys.modules)
"""


@pytest.mark.slow
def test_modules_are_loaded_without_a_second_thread() -> None:
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "False", "True", "True"]


def test_only_the_zip_of_an_installed_pyspark_leaves_the_path(tmp_path: Path) -> None:
    copy = str(Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip")
    others = ["", str(tmp_path), "/opt/spark/python/lib/pyspark.zip", "/pyspark.zip", "pyspark.zip"]
    path = [*others, copy]
    prefer_installed_pyspark(path)
    assert path == others
