"""Executors: three ways to run a handler. Each starts a record and says later, from any thread, how it ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Protocol

from tsdb.parallel_consumer.record import Record

CLOSE_S = 1.0  # For handlers that were cancelled; one that swallows that is left behind.

Done = Callable[[BaseException | None], None]


class Executor(Protocol):
    """Runs records. `submit` never blocks; the consumer bounds how many run."""

    def start(self) -> None:
        """Before the first record."""

    def submit(self, record: Record, done: Done) -> None:
        """Handle a record; `done` is called once, with what the handler raised or None."""

    def close(self) -> None:
        """After the last record, or to abandon those that run: what they still tell is ignored."""


class OnThreads:
    """A handler that blocks, on threads of its own. `threads`: as many as the consumer's concurrency."""

    def __init__(self, handler: Callable[[Record], object], threads: int, *, name: str = "handler") -> None:
        self._handler = handler
        self._queue: SimpleQueue[tuple[Record, Done] | None] = SimpleQueue()
        # Daemons: one that hangs in a handler must not keep an aborted process alive.
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, record: Record, done: Done) -> None:
        self._queue.put((record, done))

    def close(self) -> None:
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            record, done = item
            try:
                self._handler(record)
            except BaseException as error:
                done(error)
            else:
                done(None)


class OnLoop:
    """An async handler, on an event loop in a thread of its own."""

    def __init__(self, handler: Callable[[Record], Awaitable[object]], *, name: str = "handler-loop") -> None:
        self._handler = handler
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
        self._thread.start()

    def submit(self, record: Record, done: Done) -> None:
        assert self._loop is not None, "a record before start"
        self._loop.call_soon_threadsafe(self._begin, self._loop, record, done)

    def close(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop, self._loop)
            self._thread.join(CLOSE_S)
            self._loop = None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        if self._tasks:
            loop.run_until_complete(asyncio.wait(self._tasks))
        loop.close()

    def _begin(self, loop: asyncio.AbstractEventLoop, record: Record, done: Done) -> None:
        # The loop holds tasks weakly: without the set one could vanish.
        task = loop.create_task(self._handle(record, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, record: Record, done: Done) -> None:
        try:
            await self._handler(record)
        except BaseException as error:
            done(error)
            if not isinstance(error, Exception):
                raise
        else:
            done(None)

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in self._tasks:
            task.cancel()
        loop.stop()


class WithCallback:
    """A handler that begins something and is told of its end: handler(record, done). It runs on the consumer's own
    thread and must not block.
    """

    def __init__(self, handler: Callable[[Record, Done], None]) -> None:
        self._handler = handler

    def start(self) -> None:
        """There is no thread."""

    def submit(self, record: Record, done: Done) -> None:
        try:
            self._handler(record, done)
        except Exception as error:
            done(error)

    def close(self) -> None:
        """There is no thread."""
