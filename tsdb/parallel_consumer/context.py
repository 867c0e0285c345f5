"""Context: what a handler may do with its record besides returning or raising.

A deferred end that nobody can tell any more is told as DeferralLost, and the error policy decides: nothing freezes
without a word, and nothing is taken for finished.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NoReturn

from tsdb.parallel_consumer.errors import DeferralLost, Nack, Requeue
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.work import Ending


class Deferral:
    """The end of a record, in whoever's hands it is. From any thread."""

    __slots__ = ("_ending", "_told", "record")

    def __init__(self, record: Record, ending: Ending) -> None:
        self.record = record
        self._ending = ending
        self._told = False

    def complete(self) -> None:
        """The record is done."""
        self._tell(None)

    def fail(self, error: BaseException) -> None:
        """It is not: the error policy decides, as if the handler had raised."""
        self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        self._told = True
        self._ending(error)

    def __del__(self) -> None:
        if not self._told:
            record = self.record
            place = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
            self._ending.lost(DeferralLost(f"{place}: the deferred end was dropped without being told"))


class Context:
    """One try of one record. attempt: from 1, those before a restart counted."""

    __slots__ = ("_deferred", "_ending", "attempt", "record")

    def __init__(self, record: Record, ending: Ending) -> None:
        self.record = record
        self.attempt = ending.attempt
        self._ending = ending
        self._deferred = False

    def defer(self) -> Deferral:
        """The handler may return: the record ends when the deferral is told. It keeps its place among those in flight.

        A handler that raises afterwards has failed all the same; what the deferral tells then is late.
        """
        self._deferred = self._ending.work.deferred = True
        self._ending.unhurried = False
        return Deferral(self.record, self._ending)

    def nack(self, delay_s: float) -> NoReturn:
        """Not now: the record is tried again after so long, and its lane waits. It counts as no attempt."""
        raise Nack(delay_s)

    def requeue(self) -> NoReturn:
        """Not now: the record goes to the end of its topic, a bounded number of times; its lane goes on."""
        raise Requeue("asked for by the handler")

    def end(self, error: BaseException | None) -> bool:
        """The handler has returned, or raised; whether that is the end of the record."""
        ended = error is not None or not self._deferred
        if ended:
            self._ending(error)
        return ended


def takes_context(handler: Callable[..., object]) -> bool:
    """Whether a handler takes the context too: two positional parameters without a default."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False  # A builtin that does not tell: it takes the record.
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is one.empty for one in parameters) >= 2
