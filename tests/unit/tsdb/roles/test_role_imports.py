"""A role loads what it runs: its process imports a bounded number of our modules, and no library of another role."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tsdb.codec.kernel_sources import CHECKOUT

PROGRAM = """
import importlib, json, sys
importlib.import_module("tsdb.roles." + sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""
COMPILER = """
import importlib, json, sys
loaded = {}
for module in sys.argv[1:]:
    importlib.import_module(module)
    loaded[module] = [name for name in ("numba", "llvmlite", "kernel_build") if name in sys.modules]
print(json.dumps(loaded))
"""
MODULES = (
    *(f"tsdb.roles.{path.stem}" for path in sorted((CHECKOUT / "tsdb" / "roles").glob("[a-z]*.py"))),
    *(f"tsdb.roles.trials.{path.stem}" for path in sorted((CHECKOUT / "tsdb" / "roles" / "trials").glob("[a-z]*.py"))),
    *(
        "tsdb.cli.main",
        "tsdb.client",
        "chunker.chunker",
        "spark_backfill.pipeline.pipeline",
        "spark_backfill.building.task",
    ),
)
OURS = ("tsdb", "ingest", "chunker", "spark_backfill")
LATER = (
    "cassandra",
    "pyarrow",
    "bokeh",
    "jinja2",
    "pyspark",
    "kafka",
    "pandas",
    "pyiceberg",
    "sqlalchemy",
    "duckdb",
    "rich",
    "confluent_kafka",
    "sqlite3",
    "google.protobuf.descriptor_pb2",  # gRPC reflection needs it.
    "anyio._backends._asyncio",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "bound"), [("gateway", 225), ("store", 255), ("chunker", 215), ("loader", 195), ("canary", 130)]
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
def test_no_process_loads_the_compiler_of_kernels() -> None:
    """All modules in one process: what none of them loads together, none loads alone."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILER, *MODULES], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == {module: [] for module in MODULES}
