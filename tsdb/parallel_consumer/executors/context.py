"""Context: lets a handler defer, nack or requeue its record instead of returning or raising.

A Deferral that is dropped unfinished is reported as DeferralLost, and the error policy decides: the record neither
blocks the partition silently nor counts as finished.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from tsdb.parallel_consumer.errors import DeferralLost, Nack, Requeue
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.completion import Completion


class Deferral:
    """Finishes a deferred record. Any thread may call it."""

    __slots__ = ("_completed", "_completion", "record")

    def __init__(self, record: Record, completion: Completion) -> None:
        self.record = record
        self._completion = completion
        self._completed = False

    def complete(self) -> None:
        """The record is finished."""
        self._complete(None)

    def fail(self, error: BaseException) -> None:
        """The record failed: the error policy decides, as if the handler had raised."""
        self._complete(error)

    def _complete(self, error: BaseException | None) -> None:
        self._completed = True
        self._completion(error)

    def __del__(self) -> None:
        if not self._completed:
            record = self.record
            location = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
            self._completion.lost(DeferralLost(f"{location}: the Deferral was dropped unfinished"))


class Context:
    """One attempt of one record. attempt: counts from 1, attempts before a restart included."""

    __slots__ = ("_completion", "_deferred", "attempt", "record")

    def __init__(self, record: Record, completion: Completion) -> None:
        self.record = record
        self.attempt = completion.attempt
        self._completion = completion
        self._deferred = False

    def defer(self) -> Deferral:
        """Let the handler return without finishing the record: the Deferral finishes it. The record keeps its slot.

        If the handler raises afterwards, the record has failed; a later result of the Deferral is ignored.
        """
        self._deferred = self._completion.task.deferred = True
        self._completion.skip_wakeup = False
        return Deferral(self.record, self._completion)

    def nack(self, delay_s: float) -> NoReturn:
        """Try the record again after delay_s; its lane waits. No attempt is counted."""
        raise Nack(delay_s)

    def requeue(self) -> NoReturn:
        """Send the record to the end of its topic, a bounded number of times; its lane goes on."""
        raise Requeue("requested by the handler")

    def end(self, error: BaseException | None) -> bool:
        """The handler has returned or raised. Returns whether the record is finished."""
        ended = error is not None or not self._deferred
        if ended:
            self._completion(error)
        return ended


def takes_context(handler: Callable[..., object]) -> bool:
    """Whether a handler has two positional parameters without a default: record and context."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False  # A builtin without a signature takes the record alone.
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is one.empty for one in parameters) >= 2


def is_async(handler: Any) -> bool:
    """Whether a function, or an object with an async `__call__`, is a coroutine function."""
    call = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    return inspect.iscoroutinefunction(call)
