"""`tsdb warmup`: compiles every kernel ahead of time, so that no process does so at its start."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from tsdb.cli.arguments import TableOrJson
from tsdb.cli.output import note, print_json, print_table
from tsdb.cli.progress import progress_bar

# The packages of each process, which compiles one after the other. Packages that share most kernels are in one process:
# two would compile the shared kernels twice. Kernels of the codec are compiled with their callers.
SHARES = (("tsdb.head", "tsdb.chunks"), ("tsdb.history.loader", "tsdb.client", "tsdb.query", "ingest"))
PACKAGES = tuple(package for share in SHARES for package in share)


def warmup(output: TableOrJson = "table") -> None:
    """Compile all kernels into the cache (NUMBA_CACHE_DIR); fast when the cache has them already."""
    # Imported here: loading numba takes half a second, and other commands do not need it.
    from tsdb.codec.jit import cache_root

    seconds: dict[str, float] = {}
    compiled = 0
    processes = min(len(SHARES), os.cpu_count() or 1)
    spawn = multiprocessing.get_context("spawn")
    with progress_bar("warming up", "packages") as (done, expect), ProcessPoolExecutor(processes, spawn) as pool:
        expect(len(PACKAGES))
        for share in as_completed([pool.submit(warm_up_all, share) for share in SHARES]):
            for package, (spent_s, count) in share.result().items():
                seconds[package] = spent_s
                compiled += count
                done(1)
    # When two processes cached a kernel at the same time, the cache may have lost one result. This pass compiles lost
    # kernels again.
    compiled += sum(warm_up(package)[1] for package in PACKAGES)
    if output == "json":
        print_json({"packages": seconds, "compiled": compiled, "seconds": round(sum(seconds.values()), 3)})
    else:
        print_table(("package", "seconds"), seconds.items(), right=("seconds",))
        note(f"{compiled} kernels compiled into {cache_root()}")


def warm_up_all(packages: Sequence[str]) -> dict[str, tuple[float, int]]:
    return {package: warm_up(package) for package in packages}


def warm_up(package: str) -> tuple[float, int]:
    """Run the warm-up of one package in this process. Returns (seconds, number of compiled kernels)."""
    from tsdb.codec.jit import Compiling

    module = importlib.import_module(f"{package}.warm_up")
    began = time.monotonic()
    with Compiling(lambda name: None) as compiling:
        module.warm_up()
    return round(time.monotonic() - began, 3), compiling.count
