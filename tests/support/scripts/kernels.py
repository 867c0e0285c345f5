"""Kernels that this process has: compiled or loaded from the cache, which a request must not wait for either."""

from __future__ import annotations

import sys

from numba.core.dispatcher import Dispatcher


def kernels_here() -> set[str]:
    """Name and signature of each kernel in the modules of this project.

    A copy of a dict is one step. A list of its items is not: other threads import modules and load kernels meanwhile.
    """
    return {
        f"{thing.py_func.__module__}.{thing.py_func.__qualname__} {signature}"
        for name, module in sys.modules.copy().items()
        if name.startswith(("tsdb.", "ingest.", "chunker."))
        for thing in vars(module).copy().values()
        if isinstance(thing, Dispatcher)
        for signature in thing.overloads.copy()
    }
