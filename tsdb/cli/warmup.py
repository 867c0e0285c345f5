"""`tsdb warmup`: compiles every kernel ahead of time, so that no process does so at its start."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.cli.terminal.progress import progress_bar
from tsdb.cpu import core_count

# Modules with a function `warm_up`. Each row is a process, since the compiler uses one core. Both rows need the series
# index and the codec: the first row compiles the index at its start and the second row the codec, so that the other row
# finds them in the cache.
ROWS = (
    (
        "tsdb.ops.grpc.messages",
        "ingest.warm_up",
        "ingest.remote_write.wire",
        "ingest.influx.lines",
        "ingest.otlp.decode",
        "tsdb.head.warm_up",
        "tsdb.chunks.warm_up",
    ),
    (
        "tsdb.history.loader.warm_up",
        "tsdb.answer.warm_up",
        "tsdb.query.warm_up",
        "tsdb.promql.evaluate.warm_up",
        "tsdb.api.prometheus.json.warm_up",
        "tsdb.api.prometheus.remote_read.warm_up",
    ),
)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A finished warm-up of one package. compiled: kernels that were not in the cache."""

    package: str
    seconds: float
    compiled: int


def warmup(output: TableOrJson = "table") -> None:
    """Compile all kernels into the cache (NUMBA_CACHE_DIR); fast when the cache has them already."""
    # Imported here: loading numba takes half a second, and other commands do not need it.
    from tsdb.codec.kernel_folders import cache_root

    began = time.monotonic()
    found: list[WarmUp] = []
    with progress_bar("warming up", "packages") as (done, expect):
        expect(sum(map(len, ROWS)))
        for one in warm_ups():
            found.append(one)
            done(1)
    compiled = sum(one.compiled for one in found)
    if output == "json":
        seconds = round(time.monotonic() - began, 3)
        print_json({"packages": {one.package: one.seconds for one in found}, "compiled": compiled, "seconds": seconds})
    else:
        print_table(("package", "seconds"), ((one.package, one.seconds) for one in found), right=("seconds",))
        note(f"{compiled} kernels compiled into {cache_root()}")


def warm_ups() -> Iterator[WarmUp]:
    """Warm up all packages. Yields each as it ends. Raises RuntimeError when a process ended before its last."""
    rows = [sum(ROWS, ())] if core_count() == 1 else ROWS
    left = {package_of(module) for row in rows for module in row}
    pipes = [_start(row) for row in rows]
    while pipes:
        for pipe in wait(pipes):
            assert isinstance(pipe, Connection)
            try:
                one = pipe.recv()
            except EOFError:
                pipes.remove(pipe)
            else:
                left.remove(one.package)
                yield one
    if left:
        raise RuntimeError(f"not warmed up: {', '.join(sorted(left))}")


def _start(row: Sequence[str]) -> Connection[None, WarmUp]:
    """Start a process that runs the warm-ups of the modules in order. Returns the end of its pipe to read from."""
    spawn = multiprocessing.get_context("spawn")  # A fork would copy the threads' locks of a process that runs tests.
    receiving, sending = spawn.Pipe(duplex=False)
    spawn.Process(target=_run, args=(row, sending), daemon=True).start()
    sending.close()  # From then on the end of the child process ends the pipe.
    return receiving


def _run(row: Sequence[str], sending: Connection[WarmUp, None]) -> None:
    from tsdb.codec.kernel_cache import compile_for_level

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the command, which terminates this process.
    compile_for_level()
    for module in row:
        sending.send(warm_up(module))


def package_of(module: str) -> str:
    """The package that a module warms up."""
    return module.rpartition(".")[0]


def warm_up(module: str) -> WarmUp:
    """Run the warm-up of one module in this process."""
    from tsdb.codec.jit import Compiling

    loaded = importlib.import_module(module)
    began = time.monotonic()
    with Compiling(lambda name: None) as compiling:
        loaded.warm_up()
    return WarmUp(package_of(module), round(time.monotonic() - began, 3), compiling.count)
