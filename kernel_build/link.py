"""Links objects, their table and the caller into a library: a Python module of the stable ABI."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kernel_build.levels import Level
from kernel_build.objects import Object, Row

HERE = Path(__file__).parent
FLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden")


def link(objects: Sequence[Object], level: Level, library: Path, *more: str) -> None:
    """Write the library. more: options of the C compiler. Raises SystemExit if it fails."""
    rows = sorted((row for one in objects for row in one.rows), key=lambda row: row.name)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        table, linked = Path(scratch, "table.c"), Path(scratch, "library.so")
        table.write_text(table_source(rows, level))
        exports = Path(scratch, "exports")
        exports.write_text("{ global: PyInit_*; local: *; };\n")
        command = [
            *shlex.split(os.environ.get("CC", "cc")),
            *FLAGS,
            f"-DSLOTS={max((slots_of(row.arguments) for row in rows), default=0) + 1}",
            f"-DRESULTS={max((len(row.result) for row in rows), default=0) + 1}",
            *(f"-Wl,--version-script={exports}", "-Wl,-s"),
            *(f"-I{folder}" for folder in (HERE, sysconfig.get_paths()["include"], np.get_include())),
            *map(str, (table, HERE / "caller.c", HERE / "runtime.c")),
            *(str(one.path) for one in objects if one.path),
            *("-lm", *more, "-o", str(linked)),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise SystemExit(
                f"no C compiler ({command[0]}): run scripts/ensure-system.sh compiler, or set CC"
            ) from error
        if done.returncode != 0:
            raise SystemExit(f"the library of kernels cannot be linked:\n{done.stderr}")
        _check(linked)
        linked.replace(library)


def _check(library: Path) -> None:
    """Load the library in a new process, for the C compiler accepts a symbol that nothing defines. In this process the
    loader would find the symbols of numba."""
    program = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
    done = subprocess.run([sys.executable, "-c", program, str(library)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:]
        raise SystemExit(f"the library of kernels cannot be loaded: {' '.join(reason)}")


def slots_of(arguments: str) -> int:
    """Number of slots that the arguments of these codes (caller.h) take: an array has its address and its shape."""
    return sum(1 + int(dimensions or 0) for dimensions in re.findall(r"(\d)[A-Za-z?]|[a-zA-Z]", arguments))


def table_source(rows: Sequence[Row], level: Level) -> str:
    """The table of the kernels in C, and the check of the processor."""
    lines = ["#include <stddef.h>", '#include "caller.h"']
    for number, row in enumerate(rows):
        lines.append(f'int entry_{number}(const int64_t *, int64_t *) __asm__("{row.name}.entry");')
    lines.append("const Entry entries[] = {")
    for number, row in enumerate(rows):
        texts = ", ".join(f'"{text.replace("?", chr(92) + "?")}"' for text in (row.name, row.arguments, row.result))
        lines.append(f"    {{{texts}, {row.count}, {row.keeps_gil}, entry_{number}}},")
    lines += ["    {NULL, NULL, NULL, 0, 0, NULL},", "};", f'const char *const level = "{level.name}";']
    lines += ["#ifndef HAS", "#define HAS(feature) __builtin_cpu_supports(feature)", "#endif"]
    lines.append("const char *missing_feature(void) {")
    lines += [f'    if (!HAS("{feature}")) return "{feature}";' for feature in level.needed]
    lines += ["    return NULL;", "}"]
    return "\n".join(lines) + "\n"
