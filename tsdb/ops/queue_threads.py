"""Queue threads: daemon threads that take work from one queue, in its order."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from tsdb.ops.lifecycle import Deadline
from tsdb.ops.threads import new_thread

Work = TypeVar("Work")


class QueueThreads(Generic[Work]):
    """do: called with each piece of work; it must not raise. The queue has no bound, because its callers have one.

    niceness: added to the niceness of the process, for these threads and those that they start; other threads then get
    a core first. Only Linux has it for single threads.

    """

    def __init__(self, name: str, count: int, do: Callable[[Work], None], *, niceness: int = 0) -> None:
        self._do = do
        self._niceness = niceness
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._threads = [new_thread(self._run, f"{name}-{number}") for number in range(count)]

    def __len__(self) -> int:
        return len(self._threads)

    def start(self) -> None:
        """Start the threads. Earlier work is in the queue."""
        for thread in self._threads:
            thread.start()

    def put(self, work: Work) -> None:
        """Queue a piece of work."""
        self._queue.put(work)

    def join(self, timeout_s: float) -> bool:
        """Finish the queued work and end the threads. False when one still runs after the timeout."""
        deadline = Deadline.after(timeout_s)
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(deadline.remaining())
        return not any(thread.is_alive() for thread in self._threads)

    def rest(self) -> Iterator[Work]:
        """Work that came after the threads had ended."""
        while True:
            try:
                work = self._queue.get_nowait()
            except Empty:
                return
            if work is not None:
                yield work

    def _run(self) -> None:
        if self._niceness and sys.platform == "linux":
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + self._niceness)
        while (work := self._queue.get()) is not None:
            self._do(work)
            del work  # Without this, the object would live until the next piece comes.
