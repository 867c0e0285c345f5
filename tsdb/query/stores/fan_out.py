"""Fan-out: sends a request to all stores that share it at once, and to the next store where one does not answer.

A store accepts or refuses a request before its first message, so all refusals are known with the first messages. A
stream that breaks later ends the answer with an error, and the caller repeats the request: a partial answer is never
returned as a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

from tsdb.model.errors import TsdbError, Unavailable
from tsdb.query.stores.routing import Routing, Share

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
    start: Callable[[Share], Sequence[Iterator[Message]]],
    handle_refusal: RefusalHandler = lambda share, error: False,
) -> list[ShareStreams[Message]]:
    """Streams of stores that together answer for all partitions.

    start: opens the streams of a share, without waiting. handle_refusal: returns whether it handled a refusal; then the
    same store gets the request again. Raises the last store's error.
    """
    opened: list[ShareStreams[Message]] = []
    waiting = list(partitions)
    while waiting:
        begun = [(share, tuple(start(share))) for share in routing.shares(waiting)]
        waiting = []
        for share, streams in begun:
            try:
                opened.append(ShareStreams(share, tuple(_first(share, stream) for stream in streams), streams))
            except TsdbError as error:
                _close(streams)
                if not handle_refusal(share, error):
                    routing.refused(share, error)
                waiting += share.partitions
    return opened


def _first(share: Share, stream: Iterator[Message]) -> Message:
    for message in stream:
        return message
    raise Unavailable(f"store {share.store.name} ended its answer before it began", reason="answer_cut")


def _close(streams: Iterable[Any]) -> None:
    for stream in streams:
        stream.close()
