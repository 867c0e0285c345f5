"""The library of kernels: finds, checks and loads it.

A wheel or image carries one library, `tsdb/_kernels/<level>.abi3.so`. A checkout has none: there the library is in the
user's cache under a hash of the sources, and a process that needs another one than was built runs the build first, in a
separate process. So an edited kernel runs at once, and copies of the same sources share a library.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import platform
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

from tsdb.codec.kernel_sources import CHECKOUT, PACKAGES, is_checkout, kernel_modules, stamp

LEVEL_VARIABLE = "KAFKA_TSDB_KERNEL_LEVEL"
CACHE_VARIABLE = "KAFKA_TSDB_KERNEL_CACHE"
PACKAGED = Path(__file__).parents[1] / "_kernels"
SUFFIX = ".abi3.so"
ERROR_LINES_MAX = 40
MODULE = "kafka_tsdb_kernels"  # Name of the library as a Python module.


class Library(Protocol):
    def kernel(self, name: str) -> Callable[..., Any]:
        """The kernel of this name, module and function. Raises KeyError."""

    def arrays_alive(self) -> int:
        """Number of arrays that kernels have allocated and not freed."""


def asked_level() -> str:
    """The level of processors that a build compiles for. x86-64-v3: Intel since Haswell (2013), AMD since Excavator."""
    return os.environ.get(LEVEL_VARIABLE) or ("x86-64-v3" if platform.machine() == "x86_64" else "generic")


def library_of(module: str) -> Library:
    """The library with the kernels of a module. A module outside the packages, as of a test, has a separate one."""
    return _library(None if module.partition(".")[0] in PACKAGES else module)


@cache
def _library(module: str | None) -> Library:
    return load(library_path(module))


def library_path(module: str | None = None) -> Path:
    """Where the library is. Builds it in a checkout with new sources. Raises ImportError if it does not exist."""
    if module is None:
        packaged = sorted(PACKAGED.glob(f"*{SUFFIX}")) if PACKAGED.is_dir() else []
        if packaged:
            return packaged[0]
    if not is_checkout():
        raise ImportError(
            f"no library of kernels in {PACKAGED}: this installation is incomplete. Install the wheel of kafka-tsdb "
            f"for {platform.machine()}, or build one with `pip wheel` from the sources"
        )
    path = built_path(module)
    if not path.exists():
        _build(module)
    return path


def built_path(module: str | None = None) -> Path:
    """The path of the library of the present sources in the cache."""
    modules = kernel_modules()
    return cache_root() / "libraries" / f"{stamp([*modules, module] if module else modules)}-{asked_level()}{SUFFIX}"


@cache
def cache_root() -> Path:
    """Folder of what builds make: the variable's, else the user's cache folder, else one in the checkout."""
    asked = os.environ.get(CACHE_VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folders = [Path(asked)] if asked else [Path(home) / "kafka-tsdb" / "kernels", CHECKOUT / "build" / "kernels"]
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise ImportError(
        f"kernels: no folder for them can be written, tried {', '.join(map(str, folders))}: set {CACHE_VARIABLE}"
    )


def load(path: Path) -> Library:
    """Load a library. Raises ImportError if it does not fit this machine."""
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(path))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    assert spec is not None
    try:
        return cast(Library, importlib.util.module_from_spec(spec))
    except ImportError as error:
        raise ImportError(f"{path} does not fit this machine: {error}") from error


def _build(module: str | None) -> None:
    # The search path of this process finds a module of a test too.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(CHECKOUT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "kernel_build", *([module] if module else [])]
    with subprocess.Popen(
        command, env=environment, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        lines: deque[str] = deque(maxlen=ERROR_LINES_MAX)
        for line in process.stderr:
            lines.append(line.decode(errors="replace"))
            if line.startswith(b"kernels: "):  # The progress: all modules take half a minute.
                sys.stderr.write(lines[-1])
    if process.returncode != 0:
        raise ImportError(f"the kernels do not compile (`make kernels` does the same):\n{''.join(lines).strip()}")
