"""CallThreads: the thread pool of a gRPC server, with the number of calls that wait for a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class CallThreads(ThreadPoolExecutor):
    """A pool of `count` threads, named `name`-0 and so on."""

    def __init__(self, count: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._size = count
        # Guards _unfinished; an innermost lock.
        self._lock = threading.Lock()
        self._unfinished = 0

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        with self._lock:
            self._unfinished += 1
        try:
            future = super().submit(fn, *args, **kwargs)
        except BaseException:  # The pool has ended, or the system has no thread left.
            with self._lock:
                self._unfinished -= 1
            raise
        future.add_done_callback(self._finished)
        return future

    @property
    def queued(self) -> int:
        """Number of calls that wait for a thread."""
        with self._lock:
            return max(0, self._unfinished - self._size)

    @property
    def unfinished(self) -> int:
        """Number of calls that run or wait for a thread."""
        with self._lock:
            return self._unfinished

    def _finished(self, _future: Future[_T]) -> None:
        with self._lock:
            self._unfinished -= 1
