"""Waits for the answer to one append."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from tsdb.log.interface import Appended, OnDone
from tsdb.model.errors import TsdbError, Unavailable


def wait_for_append(append: Callable[[OnDone], None], timeout_s: float) -> Appended:
    """Append one record and wait for its answer. Raises an error answer, or Unavailable (timeout): the record may then
    still reach the log."""
    answers: SimpleQueue[Appended | TsdbError] = SimpleQueue()
    append(answers.put)
    try:
        answer = answers.get(timeout=timeout_s)
    except Empty:
        raise Unavailable(f"the append was not answered within {timeout_s:g} s", reason="timeout") from None
    if isinstance(answer, TsdbError):
        raise answer
    return answer
