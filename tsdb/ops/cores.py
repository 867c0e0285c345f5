"""Cores: pieces of one read's work, which need no GIL, on several cores at once. The caller waits and takes part.

Threads live for one call: they cost 0.1 ms, and there is no pool to own, to bound or to end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from tsdb.cpu import core_count
from tsdb.ops.home_core import all_cores

LARGE_BYTES = 4 << 20  # This is 250,000 samples. Below it a second thread costs more time than it saves.
PARTS_A_CORE = 2  # More than one part, because parts take different times.

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_cores(function: Callable[[Item], Result], items: Sequence[Item], size: int) -> list[Result]:
    """The results of function(item), in the order of items. size: bytes that the work reads and writes; below
    LARGE_BYTES the caller's thread does all of it. Raises an error of `function` after all threads have ended."""
    # The size is checked first, because counting the cores reads files of the cgroup, which takes 0.2 ms.
    helpers = min(core_count(), len(items)) - 1 if size >= LARGE_BYTES and len(items) > 1 else 0
    if helpers < 1:
        return [function(item) for item in items]
    waiting = deque(enumerate(items))
    results: dict[int, Result] = {}

    def work() -> None:
        with all_cores(size):
            while waiting:
                try:
                    number, item = waiting.popleft()
                except IndexError:  # Another thread took the last one.
                    return
                results[number] = function(item)

    with ThreadPoolExecutor(helpers, thread_name_prefix="cores") as threads:
        futures = [threads.submit(work) for _ in range(helpers)]
        work()
        for future in futures:
            future.result()
    return [results[number] for number in range(len(items))]


def over_parts(work: Callable[[slice], object], count: int, size: int) -> None:
    """work(part) for parts of range(count) that cover it; for all of it at once on the caller's thread where `size` is
    below LARGE_BYTES. size: as of on_cores."""
    if not count:
        return
    if size < LARGE_BYTES:
        work(slice(0, count))
        return
    parts = min(count, PARTS_A_CORE * core_count())
    ends = [count * part // parts for part in range(parts + 1)]
    on_cores(work, [slice(first, end) for first, end in pairwise(ends)], size)
