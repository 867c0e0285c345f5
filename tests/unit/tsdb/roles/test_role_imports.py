"""A role loads what it runs: its process imports a bounded number of our modules, and no library of another role."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import importlib, json, sys
importlib.import_module("tsdb.roles." + sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""
LOADS = """
from tsdb.ops.grpc.messages import warm_up
warm_up()
from numba.core.runtime.nrt import rtsys
import sys
print(rtsys._init, "numba.np.arrayobj" in sys.modules)
"""
OURS = ("tsdb", "ingest", "chunker", "spark_backfill")
LATER = ("cassandra", "pyarrow", "bokeh", "jinja2", "pyspark", "kafka", "pandas")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "bound"), [("gateway", 280), ("store", 310), ("chunker", 270), ("loader", 260), ("canary", 130)]
)
def test_a_role_imports_few_modules_and_no_library_of_another(role: str, bound: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, role], capture_output=True, text=True, check=True, timeout=120
    )
    modules = json.loads(done.stdout)
    ours = [name for name in modules if name.partition(".")[0] in OURS]
    assert len(ours) <= bound, f"{role} imports {len(ours)} modules of ours; limit is {bound}"
    assert not set(LATER) & set(modules)


@pytest.mark.slow
def test_a_process_that_loads_kernels_sets_up_no_compilation() -> None:
    for _ in range(2):  # The first may compile the kernel.
        done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["False", "False"]
