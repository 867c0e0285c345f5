"""A lock with a gap: right after a release it runs what another thread could do there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class GapLock:
    """threading.Lock as a context manager. in_gap: called once, after the first release."""

    def __init__(self, in_gap: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._in_gap: Callable[[], None] | None = in_gap

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        in_gap, self._in_gap = self._in_gap, None
        if in_gap is not None:
            in_gap()
