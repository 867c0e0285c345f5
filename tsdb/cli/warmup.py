"""`tsdb warmup`: compile every kernel now, so that no process spends its first seconds on it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tsdb.cli.arguments import TableOrJson
from tsdb.cli.output import note, print_json, print_table
from tsdb.cli.progress import progress_bar

# Longest first. The codec's kernels are compiled by those who call them.
PACKAGES = ("tsdb.head", "tsdb.chunks", "tsdb.history.loader", "tsdb.client", "tsdb.query", "ingest")
PROCESSES_MAX = 2  # Packages share kernels, so that a third would mostly compile what others do.


def warmup(output: TableOrJson = "table") -> None:
    """Compile all kernels into the cache (NUMBA_CACHE_DIR); quick when they are there already."""
    # Imported here: numba takes half a second that other commands need not spend.
    from tsdb.codec.jit import cache_root

    seconds: dict[str, float] = {}
    compiled = 0
    processes = min(PROCESSES_MAX, os.cpu_count() or 1)
    spawn = multiprocessing.get_context("spawn")
    with progress_bar("warming up", "packages") as (done, expect), ProcessPoolExecutor(processes, spawn) as pool:
        expect(len(PACKAGES))
        running = {pool.submit(warm_up, package): package for package in PACKAGES}
        for future in as_completed(running):
            seconds[running[future]], count = future.result()
            compiled += count
            done(1)
    # Of two processes that cached one kernel at once the cache may have kept one's work: here that is made good.
    compiled += sum(warm_up(package)[1] for package in PACKAGES)
    if output == "json":
        print_json({"packages": seconds, "compiled": compiled, "seconds": round(sum(seconds.values()), 3)})
    else:
        print_table(("package", "seconds"), seconds.items(), right=("seconds",))
        note(f"{compiled} kernels compiled into {cache_root()}")


def warm_up(package: str) -> tuple[float, int]:
    """(seconds, kernels compiled) of one package's warm-up, in this process."""
    from tsdb.codec.jit import Compiling

    module = importlib.import_module(f"{package}.warm_up")
    began = time.monotonic()
    with Compiling(lambda name: None) as compiling:
        module.warm_up()
    return round(time.monotonic() - began, 3), compiling.count
