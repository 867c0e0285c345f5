"""Waits for the answer to one write, for code that needs no other work meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from tsdb.history.interface import OnDone
from tsdb.model.errors import TsdbError, Unavailable


def write_sync(begin: Callable[[OnDone], None], timeout_s: float = 30.0) -> None:
    """`write_sync(lambda done: store.write_loaded(loaded, done))`: raises the error that on_done would receive.

    Raises Unavailable (timeout) without an answer: the row may or may not be there.
    """
    answer: Future[TsdbError | None] = Future()
    begin(answer.set_result)
    try:
        error = answer.result(timeout_s)
    except TimeoutError:
        raise Unavailable(f"history did not answer a write within {timeout_s:g} s", reason="timeout") from None
    if error is not None:
        raise error
