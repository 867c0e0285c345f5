"""Kernels that this process has: compiled or loaded from the cache, which a request must not wait for either."""

from __future__ import annotations

import sys

from numba.core.dispatcher import Dispatcher


def kernels_here() -> set[str]:
    """Name and signature of each kernel in the modules of this project."""
    return {
        f"{thing.py_func.__module__}.{thing.py_func.__qualname__} {signature}"
        for name, module in list(sys.modules.items())
        if name.startswith(("tsdb.", "ingest.", "chunker."))
        for thing in list(vars(module).values())
        if isinstance(thing, Dispatcher)
        for signature in thing.signatures
    }
