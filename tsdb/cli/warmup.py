"""`tsdb warmup`: compile every kernel now, so that no process spends its first seconds on it."""

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

# What one process compiles, one package after the other: those that share most kernels together, or each would compile
# them. The codec's kernels are compiled by those who call them.
SHARES = (("tsdb.head", "tsdb.chunks"), ("tsdb.history.loader", "tsdb.client", "tsdb.query", "ingest"))
PACKAGES = tuple(package for share in SHARES for package in share)


def warmup(output: TableOrJson = "table") -> None:
    """Compile all kernels into the cache (NUMBA_CACHE_DIR); fast when the cache has them already."""
    # Imported here: numba takes half a second that other commands need not spend.
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
    # Of two processes that cached one kernel at once the cache may have kept one's work: here that is made good.
    compiled += sum(warm_up(package)[1] for package in PACKAGES)
    if output == "json":
        print_json({"packages": seconds, "compiled": compiled, "seconds": round(sum(seconds.values()), 3)})
    else:
        print_table(("package", "seconds"), seconds.items(), right=("seconds",))
        note(f"{compiled} kernels compiled into {cache_root()}")


def warm_up_all(packages: Sequence[str]) -> dict[str, tuple[float, int]]:
    """warm_up of each."""
    return {package: warm_up(package) for package in packages}


def warm_up(package: str) -> tuple[float, int]:
    """(seconds, kernels compiled) of one package's warm-up, in this process."""
    from tsdb.codec.jit import Compiling

    module = importlib.import_module(f"{package}.warm_up")
    began = time.monotonic()
    with Compiling(lambda name: None) as compiling:
        module.warm_up()
    return round(time.monotonic() - began, 3), compiling.count
