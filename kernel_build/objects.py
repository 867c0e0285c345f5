"""Objects: the machine code of each module with kernels, compiled on all cores and kept under a hash of its sources."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import numba

from kernel_build.compiler import Kernel, NumbaCompiler, kernels_of
from kernel_build.levels import Level
from tsdb.codec import jit
from tsdb.codec.kernel_sources import stamp

STALE_DAYS = 30  # An object that no build has used for this long belongs to older sources.


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel in the library's table. The fields are those of `Entry` in caller.h."""

    name: str
    arguments: str
    result: str
    count: int
    keeps_gil: int


@dataclass(frozen=True, slots=True)
class Object:
    """The compiled module. path: the object file; None if the module has no kernel. compiled: not from the cache."""

    module: str
    path: Path | None
    rows: tuple[Row, ...]
    compiled: bool


def objects_of(modules: Iterable[str], level: Level, folder: Path) -> Iterator[Object]:
    """The objects of the modules, in any order. Modules that the folder lacks are compiled."""
    missing = []
    for module in modules:
        table = _table(module, level, folder)
        if table.exists():
            yield _read(module, table)
        else:
            missing.append(module)
    if len(missing) == 1:
        _begin(level)
        yield _compile(missing[0], level, folder)
    elif missing:
        yield from _compiled(missing, level, folder)


def remove_stale(folder: Path) -> None:
    """Remove the files that no build has used for long."""
    oldest = time.time() - STALE_DAYS * 86_400
    for path in folder.iterdir():
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


def _table(module: str, level: Level, folder: Path) -> Path:
    """The file with the rows of a module. The object file is beside it."""
    return (
        folder
        / f"{module}-{stamp([module], linked=False)}-{level.name}-numba-{numba.__version__}-{llvmlite.__version__}.json"
    )


def _read(module: str, table: Path, *, compiled: bool = False) -> Object:
    os.utime(table)
    rows = tuple(Row(**row) for row in json.loads(table.read_text()))
    path = table.with_suffix(".o") if rows else None
    if path is not None:
        os.utime(path)
    return Object(module, path, rows, compiled)


def _begin(level: Level) -> None:
    """Make numba compile for the level. Called once in a process, before it imports kernels."""
    gc.disable()  # An eighth of the CPU. Without it a build with two processes takes 1 GB.
    vars(numba.config).update(CPU_NAME=level.cpu, CPU_FEATURES=level.flags)
    jit.use_compiler(NumbaCompiler(level))


def _compiled(modules: Sequence[str], level: Level, folder: Path) -> Iterator[Object]:
    """Compile on all cores. A process compiles a helper once, so it takes neighbours, with helpers in common: less
    CPU than if a free process took the next of all modules."""
    count = min(len(os.sched_getaffinity(0)), len(modules))
    shares = [deque(modules[len(modules) * n // count : len(modules) * (n + 1) // count]) for n in range(count)]
    context = multiprocessing.get_context("spawn")  # A fork would copy what the threads of numba and LLVM hold.
    with ExitStack() as stack:
        processes = [stack.enter_context(ProcessPoolExecutor(1, context, _begin, (level,))) for _ in shares]
        running: dict[Future[Object], int] = {}

        def hand_out(process: int) -> None:
            own, longest = shares[process], max(shares, key=len)
            if longest:
                module = own.popleft() if own else longest.pop()
                running[processes[process].submit(_compile, module, level, folder)] = process

        for process in range(count):
            hand_out(process)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                process = running.pop(future)
                yield future.result()
                hand_out(process)


def _compile(module: str, level: Level, folder: Path) -> Object:
    table = _table(module, level, folder)
    kernels = kernels_of(module)
    if kernels:
        _write(table.with_suffix(".o"), _object_code(kernels, level))
    rows = [_row(kernel) for kernel in kernels]
    _write(table, json.dumps([asdict(row) for row in rows]).encode())
    return _read(module, table, compiled=True)


def _row(kernel: Kernel) -> Row:
    declared = kernel.declared
    return Row(kernel.symbol, declared.codes, declared.result_codes, len(declared.arguments), kernel.keeps_gil)


def _object_code(kernels: list[Kernel], level: Level) -> bytes:
    module, *others = [kernel.code() for kernel in kernels]
    for other in others:
        module.link_in(other)
    public = {kernel.symbol for kernel in kernels} | {f"{kernel.symbol}.entry" for kernel in kernels}
    for value in (*module.functions, *module.global_variables):
        # numba numbers the functions of a process, so two processes may give two functions one name.
        if not value.is_declaration and value.name not in public:
            value.linkage = "internal"
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=level.cpu, features=level.flags, opt=3, reloc="pic", codemodel="default"
    )
    return bytes(machine.emit_object(module))


def _write(path: Path, data: bytes) -> None:
    """Write a file that no reader sees in part."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    scratch.write_bytes(data)
    scratch.replace(path)
