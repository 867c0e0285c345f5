"""Fan-out: sends a request to all stores that share it at once, and to the next store where one refuses or is silent.

A store accepts or refuses a request before its first message, so all refusals are known with the first messages. A
stream that breaks later ends the answer with an error, and the caller repeats the request: a partial answer is never
returned as a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from tsdb.model.errors import TsdbError, Unavailable
from tsdb.query.stores.hedge import HEDGES, Hedged, HedgeError, HedgePlan, Opened, Start, close
from tsdb.query.stores.routing import Routing, Share
from tsdb.reader.read_call import Caller

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class ShareStreams(Generic[Message]):
    """A store that answers. first: the first message of each of its streams. rest: the remaining messages by stream."""

    share: Share
    first: tuple[Message, ...]
    rest: tuple[Iterator[Message], ...]

    def messages(self, stream: int = 0) -> Iterator[Message]:
        """All messages of one stream, the first included."""
        return chain((self.first[stream],), self.rest[stream])


RefusalHandler = Callable[[Share, TsdbError], bool]


def open_all(
    routing: Routing,
    partitions: Iterable[int],
    start: Start[Message],
    caller: Caller,
    handle_refusal: RefusalHandler = lambda share, error: False,
    hedges: HedgePlan = HEDGES,
) -> list[ShareStreams[Message]]:
    """Open the streams of stores that together answer for all partitions.

    start: opens the streams of a share, without waiting, for this caller; a hedge calls it on its own thread.
    handle_refusal: returns whether it handled a refusal; then the same store gets the request again. Raises the last
    store's error.

    """
    opened: list[ShareStreams[Message]] = []
    waiting = list(partitions)
    while waiting:
        begun = [_begin(share, routing, start, caller, hedges) for share in routing.shares(waiting)]
        waiting = []
        for one in begun:
            share, refusal = one.share, None
            try:
                opened += [ShareStreams(*found) for found in one.first()]
                continue
            except HedgeError as hedge:
                routing.refused(share, _silent(share))
                share, refusal = hedge.share, hedge.error
            except TsdbError as error:
                refusal = error
            if not handle_refusal(share, refusal):
                routing.refused(share, refusal)
            waiting += one.share.partitions
    return opened


def _begin(
    share: Share, routing: Routing, start: Start[Message], caller: Caller, hedges: HedgePlan
) -> Hedged[Message] | _Unhedged[Message]:
    alternatives = routing.alternatives(share)
    if alternatives:
        return Hedged(share, alternatives, start, _first, caller, hedges)
    return _Unhedged(share, tuple(start(share, caller)))


@dataclass(frozen=True, slots=True)
class _Unhedged(Generic[Message]):
    """Asks one store for its share, and no other store."""

    share: Share
    streams: tuple[Iterator[Message], ...]

    def first(self) -> list[Opened[Message]]:
        """The share with the first messages of its streams. Raises TsdbError."""
        try:
            firsts = tuple([_first(self.share, stream) for stream in self.streams])
            return [(self.share, firsts, self.streams)]
        except TsdbError:
            close(self.streams)
            raise


def _silent(share: Share) -> Unavailable:
    return Unavailable(f"store {share.store.name} has not answered in time", reason="store_slow", retry_after_s=1.0)


def _first(share: Share, stream: Iterator[Message]) -> Message:
    for message in stream:
        return message
    raise Unavailable(f"store {share.store.name} ended its answer before it began", reason="answer_cut")
