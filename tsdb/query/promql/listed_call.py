"""Listed call: a gRPC call of a query while it is in the list of running queries.

The call ends when its caller leaves, and when an operator cancels the query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from tsdb.model.errors import TsdbError, Unavailable
from tsdb.query.promql.running import GRPC_QUERY, RunningQueries, RunningQuery
from tsdb.reader.read_call import Caller


class ListedCall:
    """The Caller of the reads of a query: its gRPC call and its entry in the list, whichever ends first."""

    def __init__(self, caller: Caller, running: RunningQuery) -> None:
        self._caller = caller
        self._running = running

    def time_remaining(self) -> float | None:
        return self._caller.time_remaining()

    def is_active(self) -> bool:
        return self._running.is_active() and self._caller.is_active()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        # After a cancel `callback` runs twice: its second run, at the end of the call, has no effect.
        return self._running.add_callback(callback) and self._caller.add_callback(callback)

    def peer(self) -> str:
        return self._caller.peer()

    def check(self) -> None:
        """Raises QueryCanceled after a cancel."""
        self._running.check()


@contextmanager
def listed_call(queries: RunningQueries, text: str, caller: Caller) -> Iterator[ListedCall]:
    """Keep the query in the list within the block. A cancel raises Unavailable (cancelled) in place of other errors."""
    running = queries.open(GRPC_QUERY, math.inf, _address(caller.peer()))
    running.text = text
    queries.add(running)
    try:
        yield ListedCall(caller, running)
    except TsdbError as error:
        if not running.is_canceled():
            raise
        # No retry hint: a client would send the query again.
        raise Unavailable("the query was cancelled by an operator", reason="cancelled") from error
    finally:
        queries.remove(running)


def _address(peer: str) -> str:
    """HOST:PORT from gRPC's name of a peer, such as `ipv4:127.0.0.1:9090` or `ipv6:%5B::1%5D:9090`."""
    return unquote(peer).partition(":")[2]
