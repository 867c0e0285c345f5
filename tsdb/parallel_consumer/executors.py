"""Executors: ways to run a handler. Each starts a record and reports its completion later, from any thread.

A handler takes a record, or a record and its Context.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tsdb.parallel_consumer.columns import Columns
from tsdb.parallel_consumer.context import Context, takes_context
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.runtimes import EventLoop, Threads
from tsdb.parallel_consumer.streaks import Streak
from tsdb.parallel_consumer.work import Ending

Done = Callable[[BaseException | None], None]
Handler = Callable[..., object]  # (record) or (record, context)
AsyncHandler = Callable[..., Awaitable[object]]

TURN_S = 0.005  # A streak may keep a thread or the loop this long while others wait for it.


class Executor(Protocol):
    """Runs records. `submit` never blocks; the consumer bounds how many run."""

    def start(self) -> None:
        """Called before the first record."""

    def submit(self, record: Record, done: Ending) -> None:
        """Handle a record; call `done` once, with the handler's exception or None."""

    def close(self) -> None:
        """Called after the last record, or to abandon running ones: their completions are ignored."""


class Gathering(Protocol):
    """An executor that gathers records before it runs them. Called by the consumer's thread."""

    def flush(self, now: float) -> None:
        """All records that can run at `now`, monotonic seconds, were submitted: run the gathered ones, or wait for
        more.
        """

    def due_in_s(self, now: float) -> float | None:
        """Seconds until the gathered records run at any number; None: none are gathered."""


class InStreaks(Protocol):
    """An executor that runs the records of a streak one after the other by itself."""

    def submit_streak(self, streak: Streak) -> None:
        """Handle records taken from the streak, each after the one before it succeeded; complete each of them."""


class OnTheSpot(Protocol):
    """An executor whose handler runs on the consumer's thread."""

    def handler_here(self) -> Callable[[Record], object] | None:
        """The handler, if the consumer may call it directly where records are read; None: records must be submitted."""


class ColumnExecutor(Protocol):
    """An executor that takes blocks. A record tried alone is submitted as a record."""

    def submit_columns(self, columns: Columns, done: Ending) -> None:
        """Handle a block; call `done` with None, SomeFailed, or the error of the whole block."""


class OnThreads:
    """A blocking handler, on a pool of threads. `threads`: as many as the consumer's concurrency, or fewer where
    handlers defer.
    """

    def __init__(self, handler: Handler, threads: int, *, name: str = "handler") -> None:
        self._handler = handler
        self._handle = self._call_with_context if takes_context(handler) else self._call
        self._threads = Threads(self._run, threads, name)
        self._nothing_waits = self._threads.nothing_waits

    def start(self) -> None:
        self._threads.start()

    def submit(self, record: Record, done: Ending) -> None:
        self._threads.put((record, done))

    def submit_streak(self, streak: Streak) -> None:
        self._threads.put(streak)

    def close(self) -> None:
        self._threads.close()

    def _run(self, item: tuple[Record, Ending] | Streak) -> None:
        if isinstance(item, Streak):
            self._run_streak(item)
        else:
            self._handle(*item)

    def _run_streak(self, streak: Streak) -> None:
        until = time.monotonic() + TURN_S
        while (done := streak.take()) is not None and self._handle(done.work.record, done):
            if not self._nothing_waits() and time.monotonic() >= until:
                self._threads.put(streak)  # Queue it behind those that wait for a thread.
                return

    def _call(self, record: Record, done: Ending) -> bool:
        """Whether the record succeeded."""
        try:
            self._handler(record)
        except BaseException as error:
            done(error)
            return False
        if not self._nothing_waits():
            done.unhurried = True
        done(None)
        return True

    def _call_with_context(self, record: Record, done: Ending) -> bool:
        context = Context(record, done)
        try:
            self._handler(record, context)
        except BaseException as error:
            context.end(error)
            return False
        return context.end(None)


class OnLoop:
    """An async handler, on an event loop in a dedicated thread."""

    def __init__(self, handler: AsyncHandler, *, name: str = "handler-loop") -> None:
        self._handler: Callable[..., Awaitable[Any]] = handler
        self._with_context = takes_context(handler)
        self._loop = EventLoop(name)

    def start(self) -> None:
        self._loop.start()

    def submit(self, record: Record, done: Ending) -> None:
        self._loop.spawn(self._handle, record, done)

    def submit_streak(self, streak: Streak) -> None:
        self._loop.spawn(self._handle_streak, streak)

    def close(self) -> None:
        self._loop.close()

    async def _handle_streak(self, streak: Streak) -> None:
        until = time.monotonic() + TURN_S
        while (done := streak.take()) is not None and await self._handle(done.work.record, done):
            if time.monotonic() >= until:
                await asyncio.sleep(0)  # The handler may never have awaited.
                until = time.monotonic() + TURN_S

    async def _handle(self, record: Record, done: Ending) -> bool:
        """Whether the record succeeded."""
        context = Context(record, done) if self._with_context else None
        tell = done if context is None else context.end
        try:
            await (self._handler(record) if context is None else self._handler(record, context))
        except BaseException as error:
            tell(error)
            if not isinstance(error, Exception):
                raise
            return False
        if context is not None:
            return context.end(None)
        done(None)
        return True


class WithCallback:
    """A handler that starts an operation and completes it later: handler(record, done). It runs on the consumer's
    thread and must not block.
    """

    def __init__(self, handler: Callable[[Record, Done], None]) -> None:
        self._handler = handler

    def start(self) -> None:
        """No thread to start."""

    def submit(self, record: Record, done: Ending) -> None:
        try:
            self._handler(record, done)
        except Exception as error:
            done(error)

    def close(self) -> None:
        """No thread to end."""


class OnTheOwner:
    """A handler that never waits, on the consumer's thread: for work that is quicker than a hand-over.

    While it runs nothing is read or committed, so it must not block; if it takes longer than the rebalance timeout, the
    member loses its partitions.
    """

    def __init__(self, handler: Callable[[Record], object]) -> None:
        self._handler = handler

    def start(self) -> None:
        """No thread to start."""

    def handler_here(self) -> Callable[[Record], object] | None:
        return self._handler

    def submit(self, record: Record, done: Ending) -> None:
        try:
            self._handler(record)
        except Exception as error:
            done(error)
        else:
            done(None)

    def close(self) -> None:
        """No thread to end."""
