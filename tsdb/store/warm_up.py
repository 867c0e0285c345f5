"""Warm-up: the kernels of replay and reads are compiled or loaded before a partition can be ready.

A read or a replay that compiles takes seconds. So a store must not report ready or measure its lag before the warm-up
has ended.
"""

from __future__ import annotations

import functools
import threading

from tsdb.codec.jit import Compiling
from tsdb.head.warm_up import warm_up as warm_up_head
from tsdb.ops.logs import get_logger

log = get_logger(__name__)

_lock = threading.Lock()  # Held while one thread warms up; the others wait for it.


def warm_up() -> None:
    """Load the kernels, once per process. Later and concurrent calls wait for the first."""
    with _lock:
        _warm_up()


@functools.cache
def _warm_up() -> None:
    with Compiling(lambda name: None) as compiling:
        warm_up_head()
    log.info("kernels ready", compiled=compiling.count, seconds=round(compiling.seconds, 1))
