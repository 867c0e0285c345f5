"""The one owner of numba: the `kernel` decorator, the cache of compiled kernels, and the announcement of a compile.

Three files help it: `kernel_compiler` compiles, `kernel_cache` keeps the result, `kernel_folders` says where.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba.core import event

from tsdb.codec.kernel_cache import KernelCache
from tsdb.codec.kernel_compiler import HelperDispatcher, KernelDispatcher

Function = TypeVar("Function", bound=Callable[..., Any])

_kernels: list[KernelDispatcher] = []  # The kernels of the imported modules.


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
    dispatcher = KernelDispatcher(function, nogil=not keeps_gil)
    dispatcher.use_cache(KernelCache(function))
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
