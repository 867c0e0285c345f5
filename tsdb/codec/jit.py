"""The one owner of numba: the `kernel` decorator, the cache of compiled kernels, and the announcement of a compile.

numba's cache knows the source of the kernel's own file only, so a kernel would go on calling an old version of a
kernel in another file. Here the compiled code of a module is filed under a hash of its source and of the sources it
imports: an edit anywhere below gives a new folder, and two versions of the code never share one.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

from tsdb.codec.kernel_cache import KernelCache
from tsdb.codec.kernel_compiler import HelperDispatcher, KernelDispatcher

Function = TypeVar("Function", bound=Callable[..., Any])

CACHE_DIR_VARIABLE = "NUMBA_CACHE_DIR"
_kernels: list[KernelDispatcher] = []  # Those of the imported modules.

STALE_CACHE_DAYS = 30  # A folder that no process has opened for this long belongs to an older version of the code.


def kernel(function: Function) -> Function:
    """Compiles `function` with numba: cached on disk, without the GIL, IEEE floats (no fastmath), no bounds checks.

    A kernel checks its own bounds. Division by zero follows numpy (inf, nan, or 0 for integers), it never raises.
    """
    return _compiled(function, keeps_gil=False)


def short_kernel(function: Function) -> Function:
    """A `kernel` that keeps the GIL, for the work of one request or record, which takes microseconds.

    A busy thread takes a GIL that is given up, and the kernel's thread then waits and wakes to have it back. With eight
    such kernels a request, a gateway spent an eighth of its CPU on that.
    """
    return _compiled(function, keeps_gil=True)


def _compiled(function: Function, *, keeps_gil: bool) -> Function:
    vars(numba.config)["CACHE_DIR"] = str(_module_cache(function.__module__))
    dispatcher = KernelDispatcher(function, nogil=not keeps_gil)
    dispatcher.use_cache(KernelCache(function, _module_folder(function.__module__)))
    _kernels.append(dispatcher)
    return cast(Function, dispatcher)


def kernel_counts() -> tuple[int, int]:
    """(kernels that are compiled or loaded, all kernels) of the imported modules."""
    return sum(bool(dispatcher.overloads) for dispatcher in _kernels), len(_kernels)


def helper(function: Function) -> Function:
    """Makes `function` a part of the kernels that call it. A call from Python, as tests make, compiles it alone."""
    return cast(Function, HelperDispatcher(function))


class Compiling(event.Listener):
    """While installed, calls `on_compile(name)` as each kernel begins to compile; loads from the cache are silent.

    A context manager. `count` and `seconds` (wall time, nested compiles counted once) are its cost. The
    callback comes on the thread that compiles.
    """

    def __init__(self, on_compile: Callable[[str], None]) -> None:
        self.count = 0
        self.seconds = 0.0
        self._on_compile = on_compile
        self._depth = threading.local()

    def on_start(self, occurrence: event.Event) -> None:
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        if depth == 0:
            self._depth.started = time.monotonic()
        self.count += 1
        self._on_compile(occurrence.data["dispatcher"].py_func.__qualname__)

    def on_end(self, occurrence: event.Event) -> None:
        self._depth.value -= 1
        if self._depth.value == 0:
            self.seconds += time.monotonic() - self._depth.started

    def __enter__(self) -> Compiling:
        event.register("numba:compile", self)
        return self

    def __exit__(self, *exception: object) -> None:
        event.unregister("numba:compile", self)


@functools.cache
def cache_root() -> Path:
    """Folder of the compiled kernels: NUMBA_CACHE_DIR, else the user's cache folder, else a private temporary one."""
    asked = os.environ.get(CACHE_DIR_VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for candidate in [Path(asked)] if asked else [Path(home) / "kafka-tsdb" / "kernels"]:
        try:
            candidate.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=candidate).close()
            return candidate
        except OSError:
            continue
    # Compiled code is loaded and run, so a shared folder under a guessable name would be a way in.
    return Path(tempfile.mkdtemp(prefix="kafka-tsdb-kernels-"))


@functools.cache
def _module_cache(module: str) -> Path:
    folder = cache_root() / _module_folder(module)
    if not folder.exists():
        _remove_stale(folder.parent)
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    return folder


@functools.cache
def _module_folder(module: str) -> str:
    """The folder of a module below the root of a cache: it changes with the sources of the module and those below."""
    return f"{module}/{_stamp(module)}"


def _remove_stale(parent: Path) -> None:
    oldest = time.time() - STALE_CACHE_DAYS * 86_400
    for folder in parent.iterdir() if parent.exists() else ():
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def _stamp(module: str) -> str:
    """Hash of the sources of `module` and of all modules of ours below it."""
    digests: dict[str, bytes] = {}
    ours = {__name__.split(".")[0], module.split(".")[0]}  # Packages above this one have kernels too.
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if name in digests or path is None:
            continue
        digests[name], imported = _source(path)
        waiting.extend(name for name in imported if name.split(".")[0] in ours)
    digest = hashlib.sha256()
    for name in sorted(digests):
        digest.update(name.encode() + b"\0" + digests[name])
    return digest.hexdigest()[:16]


@functools.cache
def _path(module: str) -> str | None:
    """The source file of a module; None for a name that is no module. The same whether the module is loaded or not."""
    package, _, rest = module.partition(".")
    for folder in getattr(sys.modules.get(package), "__path__", ()):
        stem = os.path.join(folder, *rest.split("."))
        for path in (f"{stem}.py", os.path.join(stem, "__init__.py")):
            if os.path.exists(path):
                return path
    loaded = getattr(sys.modules.get(module), "__file__", None)
    return loaded if loaded and os.path.exists(loaded) else None


# Parsed once: a module near the top imports thirty others, and many modules import the same ones.
@functools.cache
def _source(path: str) -> tuple[bytes, list[str]]:
    """(hash of a file, modules named in its import statements)."""
    source = Path(path).read_bytes()
    return hashlib.sha256(source).digest(), _imports(source.decode())


# A regular expression is 20 x as quick as a syntax tree, at each start. A name that it takes from a text costs a stat.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]+))", re.MULTILINE
)


def _imports(source: str) -> list[str]:
    """Modules named in import statements; `from tsdb.codec import x` may name a module or a thing in one."""
    found: list[str] = []
    for package, names, modules in _IMPORT.findall(source):
        named = [words[0] for part in (names or modules).strip("()").split(",") if (words := part.split())]
        found += [package, *(f"{package}.{name}" for name in named)] if package else named
    return found
