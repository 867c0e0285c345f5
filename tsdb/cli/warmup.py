"""`tsdb warmup`: compiles every kernel ahead of time, so that no process does so at its start."""

from __future__ import annotations

import importlib
import time

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.cli.terminal.progress import progress_bar

# In one process: two would each compile the helpers that both need, which costs half as much CPU time again.
PACKAGES = ("tsdb.head", "tsdb.chunks", "tsdb.history.loader", "tsdb.client", "tsdb.query", "ingest")


def warmup(output: TableOrJson = "table") -> None:
    """Compile all kernels into the cache (NUMBA_CACHE_DIR); fast when the cache has them already."""
    # Imported here: loading numba takes half a second, and other commands do not need it.
    from tsdb.codec.jit import cache_root

    seconds: dict[str, float] = {}
    compiled = 0
    with progress_bar("warming up", "packages") as (done, expect):
        expect(len(PACKAGES))
        for package in PACKAGES:
            seconds[package], count = warm_up(package)
            compiled += count
            done(1)
    if output == "json":
        print_json({"packages": seconds, "compiled": compiled, "seconds": round(sum(seconds.values()), 3)})
    else:
        print_table(("package", "seconds"), seconds.items(), right=("seconds",))
        note(f"{compiled} kernels compiled into {cache_root()}")


def warm_up(package: str) -> tuple[float, int]:
    """Run the warm-up of one package in this process. Returns (seconds, number of compiled kernels)."""
    from tsdb.codec.jit import Compiling

    module = importlib.import_module(f"{package}.warm_up")
    began = time.monotonic()
    with Compiling(lambda name: None) as compiling:
        module.warm_up()
    return round(time.monotonic() - began, 3), compiling.count
