"""Spark's own reader of Iceberg as a process, in an environment for itself: its version of Spark is not ours."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from stack.maven import ICEBERG_SPARK, jars
from support.spark.spark import CONF, ROOT

PYSPARK = "pyspark[sql]==4.1.1"
SCRIPT = ROOT / "tests/support/scripts/spark_iceberg.py"


def spark_of_iceberg() -> tuple[Path, dict[str, str]]:
    """The Python of an environment with the Spark that Iceberg's runtime is for, and the variables that add the runtime
    to its sessions. The first call on a machine installs 450 MB."""
    # The session of the tests sets the home of its Spark for the processes that it starts.
    outer = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    command = [str(ROOT / "scripts/run-tool.sh"), PYSPARK, "find_spark_home.py"]
    home = Path(subprocess.run(command, check=True, capture_output=True, text=True, env=outer).stdout.strip())
    python = home.parents[3] / "bin/python"
    jar_paths = ",".join(map(str, sorted(jars(ICEBERG_SPARK).glob("*.jar"))))
    conf = {**CONF, "spark.master": "local[1]", "spark.ui.enabled": "false", "spark.jars": jar_paths}
    options = " ".join(f'--conf "{key}={value}"' for key, value in conf.items())
    return python, {**outer, "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell", "PYSPARK_PYTHON": str(python)}


class SparkIceberg:
    """A context manager: one session of that Spark."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._reads = 0

    def __enter__(self) -> Self:
        python, env = spark_of_iceberg()
        self._errors = (self._scratch / "spark_iceberg.log").open("wb")
        self._process = subprocess.Popen(
            [python, str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=env,
            cwd=self._scratch,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._errors.close()

    def read(self, metadata: str, where: str, columns: Sequence[str]) -> pa.Table:
        """Rows of one state of a table."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._reads += 1
        out = self._scratch / f"read{self._reads}.arrow"
        asked = {"metadata": metadata, "where": where, "columns": list(columns), "out": str(out)}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer == "done", f"{answer}\n{(self._scratch / 'spark_iceberg.log').read_text()[-4000:]}"
        with pa.memory_map(str(out)) as file:
            found = pa.ipc.open_file(file).read_all()
        out.unlink()
        return found
