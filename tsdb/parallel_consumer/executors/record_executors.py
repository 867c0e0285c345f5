"""Executors: ways to run a handler. Each starts a record and reports its completion later, from any thread.

A handler takes a record, or a record and its Context.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tsdb.parallel_consumer.executors.context import Context, takes_context
from tsdb.parallel_consumer.executors.runtimes import EventLoop, Threads
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.completion import Completion
from tsdb.parallel_consumer.scheduling.streaks import Streak

Done = Callable[[BaseException | None], None]
Handler = Callable[..., object]  # A function of (record), or of (record, context).
AsyncHandler = Callable[..., Awaitable[object]]

TURN_S = 0.005  # A streak may keep a thread or the loop this long while others wait for it.


class ThreadExecutor:
    """A blocking handler, on a pool of threads. `threads`: number of threads. Choose the consumer's concurrency, or
    fewer where handlers defer.
    """

    def __init__(self, handler: Handler, threads: int, *, name: str = "handler") -> None:
        self._handler = handler
        self._handle = self._call_with_context if takes_context(handler) else self._call
        self._threads = Threads(self._run, threads, name)
        self._nothing_waits = self._threads.nothing_waits

    def start(self) -> None:
        self._threads.start()

    def submit(self, record: Record, done: Completion) -> None:
        self._threads.put((record, done))

    def submit_streak(self, streak: Streak) -> None:
        self._threads.put(streak)

    def close(self) -> None:
        self._threads.close()

    def failure(self) -> BaseException | None:
        return self._threads.failure

    def _run(self, item: tuple[Record, Completion] | Streak) -> None:
        if isinstance(item, Streak):
            self._run_streak(item)
        else:
            self._handle(*item)

    def _run_streak(self, streak: Streak) -> None:
        until = time.monotonic() + TURN_S
        while (done := streak.take()) is not None and self._handle(done.task.record, done):
            if not self._nothing_waits() and time.monotonic() >= until:
                self._threads.put(streak)  # Queue the streak behind those that wait for a thread.
                return

    def _call(self, record: Record, done: Completion) -> bool:
        """Whether the record succeeded."""
        try:
            self._handler(record)
        except BaseException as error:
            done(error)
            return False
        if not self._nothing_waits():
            done.skip_wakeup = True
        done(None)
        return True

    def _call_with_context(self, record: Record, done: Completion) -> bool:
        context = Context(record, done)
        try:
            self._handler(record, context)
        except BaseException as error:
            context.end(error)
            return False
        return context.end(None)


class AsyncioExecutor:
    """An async handler, on an event loop in a dedicated thread."""

    def __init__(self, handler: AsyncHandler, *, name: str = "handler-loop") -> None:
        self._handler: Callable[..., Awaitable[Any]] = handler
        self._with_context = takes_context(handler)
        self._loop = EventLoop(name)

    def start(self) -> None:
        self._loop.start()

    def submit(self, record: Record, done: Completion) -> None:
        self._loop.spawn(self._handle, record, done)

    def submit_streak(self, streak: Streak) -> None:
        self._loop.spawn(self._handle_streak, streak)

    def close(self) -> None:
        self._loop.close()

    def failure(self) -> BaseException | None:
        return self._loop.failure

    async def _handle_streak(self, streak: Streak) -> None:
        until = time.monotonic() + TURN_S
        while (done := streak.take()) is not None and await self._handle(done.task.record, done):
            if time.monotonic() >= until:
                await asyncio.sleep(0)  # The handler may never have awaited.
                until = time.monotonic() + TURN_S

    async def _handle(self, record: Record, done: Completion) -> bool:
        """Whether the record succeeded."""
        context = Context(record, done) if self._with_context else None
        complete = done if context is None else context.end
        try:
            await (self._handler(record) if context is None else self._handler(record, context))
        except BaseException as error:
            complete(error)
            if not isinstance(error, Exception):
                raise
            return False
        if context is not None:
            return context.end(None)
        done(None)
        return True


class CallbackExecutor:
    """A handler that starts an operation and completes it later: handler(record, done). It runs on the consumer's
    thread and must not block.
    """

    def __init__(self, handler: Callable[[Record, Done], None]) -> None:
        self._handler = handler

    def start(self) -> None:
        """Has no effect: there is no thread to start."""

    def submit(self, record: Record, done: Completion) -> None:
        try:
            self._handler(record, done)
        except Exception as error:
            done(error)

    def close(self) -> None:
        """Has no effect: there is no thread to end."""


class InlineExecutor:
    """A handler that never waits, on the consumer's thread: for work that is quicker than a hand-over.

    While it runs nothing is read or committed, so it must not block; if it takes longer than the rebalance timeout, the
    member loses its partitions.
    """

    def __init__(self, handler: Callable[[Record], object]) -> None:
        self._handler = handler

    def start(self) -> None:
        """Has no effect: there is no thread to start."""

    def inline_handler(self) -> Callable[[Record], object] | None:
        return self._handler

    def submit(self, record: Record, done: Completion) -> None:
        try:
            self._handler(record)
        except Exception as error:
            done(error)
        else:
            done(None)

    def close(self) -> None:
        """Has no effect: there is no thread to end."""
