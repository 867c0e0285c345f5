"""Runtimes: a thread pool over one queue, and an asyncio loop in a thread. Executors are built on them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

Spawned = tuple[Callable[..., Coroutine[Any, Any, object]], tuple[object, ...]]

CLOSE_S = 1.0  # Time for cancelled coroutines. A coroutine that ignores the cancellation is left running.


class Threads:
    """`count` threads that call handle(item), which must not raise. nothing_waits(): whether no item waits."""

    def __init__(self, handle: Callable[[Any], None], count: int, name: str) -> None:
        self._handle = handle
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.nothing_waits = self._queue.empty
        self.failure: BaseException | None = None  # The error that ended one of the threads.
        # Daemon threads: a hanging handler must not keep an aborted process alive.
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, item: Any) -> None:
        """A free thread takes the item. None ends one thread."""
        self._queue.put(item)

    def close(self) -> None:
        """End the threads after the queued items. Returns at once."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                self._handle(item)
        except BaseException as error:
            self.failure = error


class EventLoop:
    """An asyncio loop in a dedicated thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._spawned: deque[Spawned] = deque()
        self._woken = False  # Whether a wake-up of the loop is pending.
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None  # The error that ended the loop, or one of its tasks.

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
        self._thread.start()

    def spawn(self, coroutine: Callable[..., Coroutine[Any, Any, object]], *arguments: object) -> None:
        """Run the coroutine as an asyncio task. Call it from one thread only."""
        assert self._loop is not None, "work before start"
        self._spawned.append((coroutine, arguments))
        if not self._woken:
            # One wake-up for many: waking a loop is a system call.
            self._woken = True
            self._loop.call_soon_threadsafe(self._begin, self._loop)

    def close(self) -> None:
        """Cancel running tasks and end the thread."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop, self._loop)
            self._thread.join(CLOSE_S)
            if not self._thread.is_alive():
                self._loop.close()  # A coroutine that exited has ended the thread and left the loop open.
            self._loop = None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            if self._tasks:
                loop.run_until_complete(asyncio.wait(self._tasks))
            loop.close()
        except BaseException as error:  # A coroutine that exits ends the loop.
            self.failure = error

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._woken = False  # Clear first: a coroutine spawned from here on wakes the loop again, or is taken below.
        while self._spawned:
            coroutine, arguments = self._spawned.popleft()
            # The loop has only weak references to tasks, so without the set a task could be collected.
            task = loop.create_task(coroutine(*arguments))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Errors of handlers are caught, so this one is a bug, and a record may wait for it.
            self.failure = task.exception()

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in self._tasks:
            task.cancel()
        loop.stop()
