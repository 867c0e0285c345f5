"""Freed memory is returned to the system at intervals."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from tsdb.model.clock import ManualClock
from tsdb.ops.interpreter import (
    GC_THRESHOLDS,
    TRIM_EVERY_S,
    MallocTrimmer,
    freeze_started,
    import_without_collections,
)


def test_memory_is_given_back_at_most_once_in_a_while() -> None:
    clock = ManualClock(0)
    calls: list[int] = []
    trimmer = MallocTrimmer(clock, calls.append)
    for _ in range(4):
        clock.advance(int(TRIM_EVERY_S * 500))
        trimmer.trim_if_due()
        trimmer.trim_if_due()
    assert len(calls) == 2


def test_the_system_allocator_takes_it() -> None:
    clock = ManualClock(0)
    trimmer = MallocTrimmer(clock)
    clock.advance(int(TRIM_EVERY_S * 1000))
    trimmer.trim_if_due()


def test_collections_are_rare_until_the_start_ends_and_then_skip_its_objects() -> None:
    before = gc.get_threshold()
    try:
        import_without_collections()
        assert gc.get_threshold()[0] > 10 * GC_THRESHOLDS[0]
        freeze_started.cache_clear()
        freeze_started()
        assert gc.get_threshold() == GC_THRESHOLDS
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


ARENAS = """
import ctypes, sys, threading
from tsdb.ops.interpreter import share_malloc_arena

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
if sys.argv[2] == "shared":
    share_malloc_arena()
all_there = threading.Barrier(8)

def allocate():
    libc.malloc(ctypes.c_size_t(100_000))
    all_there.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""


def _arenas(folder: Path, way: str) -> int:
    path = folder / way
    subprocess.run([sys.executable, "-c", ARENAS, str(path), way], check=True)
    return path.read_text().count("<heap nr=")


def test_threads_that_start_later_share_the_arenas(tmp_path: Path) -> None:
    assert _arenas(tmp_path, "shared") == 1
    assert _arenas(tmp_path, "default") > 1
