"""`tsdb warmup`: compile every kernel now, so that no process spends its first seconds on it."""

from __future__ import annotations

import time

from tsdb.cli.arguments import TableOrJson
from tsdb.cli.output import note, print_json, print_table
from tsdb.cli.progress import progress_bar


def warmup(output: TableOrJson = "table") -> None:
    """Compile all kernels into the cache (NUMBA_CACHE_DIR); quick when they are there already."""
    # Imported here: numba takes half a second that other commands need not spend.
    from ingest.warm_up import warm_up as warm_up_ingest
    from tsdb.client.warm_up import warm_up as warm_up_client
    from tsdb.codec.jit import Compiling, cache_root
    from tsdb.head.warm_up import warm_up as warm_up_head
    from tsdb.history.loader.warm_up import warm_up as warm_up_loader
    from tsdb.query.warm_up import warm_up as warm_up_query

    # The codec's kernels are compiled by those who call them.
    packages = {
        "tsdb.head": warm_up_head,
        "tsdb.client": warm_up_client,
        "tsdb.history.loader": warm_up_loader,
        "tsdb.query": warm_up_query,
        "ingest": warm_up_ingest,
    }
    seconds: dict[str, float] = {}
    with progress_bar("warming up", "packages") as (done, expect), Compiling(lambda name: None) as compiling:
        expect(len(packages))
        for package, warm_up in packages.items():
            began = time.monotonic()
            warm_up()
            seconds[package] = round(time.monotonic() - began, 3)
            done(1)
    if output == "json":
        print_json({"packages": seconds, "compiled": compiling.count, "seconds": round(sum(seconds.values()), 3)})
    else:
        print_table(("package", "seconds"), seconds.items(), right=("seconds",))
        note(f"{compiling.count} kernels compiled into {cache_root()}")
