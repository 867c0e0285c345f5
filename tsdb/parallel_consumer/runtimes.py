"""Runtimes: threads that take items from a queue, and an event loop in a thread. What executors are made of."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

Spawned = tuple[Callable[..., Coroutine[Any, Any, object]], tuple[object, ...]]

CLOSE_S = 1.0  # For coroutines that were cancelled; one that swallows that is left behind.


class Threads:
    """So many threads that call work(item). It must not raise. nothing_waits(): whether no item waits for a thread."""

    def __init__(self, work: Callable[[Any], None], count: int, name: str) -> None:
        self._work = work
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.nothing_waits = self._queue.empty
        # Daemons: one that hangs in a handler must not keep an aborted process alive.
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, item: Any) -> None:
        """Whichever thread is free takes it. None ends one."""
        self._queue.put(item)

    def close(self) -> None:
        """End the threads once they have done what is queued. Returns at once."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._work(item)


class EventLoop:
    """An asyncio loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._spawned: deque[Spawned] = deque()
        self._woken = False  # Whether the loop will look at what was spawned.
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
        self._thread.start()

    def spawn(self, coroutine: Callable[..., Coroutine[Any, Any, object]], *arguments: object) -> None:
        """Run it as a task. From one thread."""
        assert self._loop is not None, "work before start"
        self._spawned.append((coroutine, arguments))
        if not self._woken:
            # Once for many: to wake a loop is a system call.
            self._woken = True
            self._loop.call_soon_threadsafe(self._begin, self._loop)

    def close(self) -> None:
        """Cancel what runs and end the thread."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop, self._loop)
            self._thread.join(CLOSE_S)
            self._loop = None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        if self._tasks:
            loop.run_until_complete(asyncio.wait(self._tasks))
        loop.close()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._woken = False  # First: what is spawned from here on wakes anew, or is taken below.
        while self._spawned:
            coroutine, arguments = self._spawned.popleft()
            # The loop holds tasks weakly: without the set one could vanish.
            task = loop.create_task(coroutine(*arguments))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in self._tasks:
            task.cancel()
        loop.stop()
