"""Executor: defines the interface between the runner and the ways to run a handler.

An executor may support more than single records: the Supports protocols declare it, and the runner checks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.completion import Completion
from tsdb.parallel_consumer.scheduling.streaks import Streak


@runtime_checkable
class Executor(Protocol):
    """Runs records. `submit` never blocks; the consumer bounds the number of running records."""

    def start(self) -> None:
        """Called before the first record."""

    def submit(self, record: Record, done: Completion) -> None:
        """Handle a record; call `done` once, with the handler's exception or None."""

    def close(self) -> None:
        """Called after the last record, or to abandon running ones: their completions are ignored."""


@runtime_checkable
class SupportsFailure(Protocol):
    """An executor or a producer that has threads. When one of them ends, its records get no completion."""

    def failure(self) -> BaseException | None:
        """The error that ended a thread; None while all work. Any thread may call it."""


@runtime_checkable
class SupportsBatching(Protocol):
    """An executor that gathers records before it runs them. Called by the consumer's thread."""

    def flush(self, now: float) -> None:
        """All records that can run at `now`, monotonic seconds, were submitted: run the gathered ones, or wait for
        more.
        """

    def due_in_s(self, now: float) -> float | None:
        """Seconds until the gathered records run at any number; None: none are gathered."""


@runtime_checkable
class SupportsStreaks(Protocol):
    """An executor that runs the records of a streak one after the other by itself."""

    def submit_streak(self, streak: Streak) -> None:
        """Handle records taken from the streak, each after the one before it succeeded; complete each of them."""


@runtime_checkable
class SupportsInline(Protocol):
    """An executor whose handler runs on the consumer's thread."""

    def inline_handler(self) -> Callable[[Record], object] | None:
        """The handler, if the consumer may call it directly where records are read; None: records must be submitted."""


@runtime_checkable
class SupportsColumns(Protocol):
    """An executor that takes blocks. A record that is tried alone is submitted as a record."""

    def submit_columns(self, columns: RecordColumns, done: Completion) -> None:
        """Handle a block; call `done` with None, SomeFailed, or the error of the whole block."""
