"""Parts of a kernel's work on several cores: series by series, or step by step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tsdb.cpu import core_count
from tsdb.ops.cores import on_cores

_PARTS_A_CORE = 2  # More than one, since parts take different times.


def over_parts(work: Callable[[slice], object], count: int, size: int) -> None:
    """work(part) for parts of range(count) that cover it. size: bytes that all of the work reads and writes."""
    parts = min(count, _PARTS_A_CORE * core_count())
    ends = [count * part // parts for part in range(parts + 1)] if parts else []
    on_cores(work, [slice(first, end) for first, end in pairwise(ends)], size)
