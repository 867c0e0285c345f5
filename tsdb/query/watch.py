"""Watch over stores: the live tail of each partition from one store, all in one stream.

When one store's stream ends or breaks, the whole watch ends. The watcher resumes by its tokens, and routing then
chooses the next store.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tsdb.answer.answer import WatchAnswer
from tsdb.answer.spec import WatchSpec
from tsdb.model.errors import Unavailable
from tsdb.ops.threads import new_thread
from tsdb.query.sources import Sources
from tsdb.query.stores.routing import NO_START_MS, Routing, Share
from tsdb.reader.read_call import Caller

QUEUED_MAX = 64  # Messages queued for a slow watcher; when the queue is full, the stores' streams wait.
CHECK_EVERY_S = 0.5  # How soon a watcher that left is noticed on a quiet stream.


class WatchRead:
    """One watch. spec: checked, its tokens too."""

    def __init__(self, sources: Sources, spec: WatchSpec, caller: Caller) -> None:
        self._sources = sources
        self._spec = spec
        self._caller = caller

    def answers(self, partitions: Sequence[int]) -> Iterator[WatchAnswer]:
        """Answers of all partitions; those of one partition in order. Raises the error that ended a store's stream."""
        routing = Routing(self._sources.stores, self._sources.topic_id, NO_START_MS, history=False)
        shares = routing.shares(partitions)
        streams = [share.store.watch(self._part(share), self._caller) for share in shares]
        if len(streams) == 1:
            return streams[0]
        return _together(streams, self._caller.is_active)

    def _part(self, share: Share) -> WatchSpec:
        resume = [token for token in self._spec.resume if token.partition in share.partitions]
        return replace(self._spec, partitions=share.partitions, resume=resume)


class _Ended:
    """Queue entry for the end of a stream, with its error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _together(streams: Sequence[Iterator[WatchAnswer]], active: Callable[[], bool]) -> Iterator[WatchAnswer]:
    """Messages of all streams in order of arrival, until one stream ends. One thread reads each stream."""
    arrived: queue.Queue[WatchAnswer | _Ended] = queue.Queue(QUEUED_MAX)
    done = threading.Event()
    threads = [new_thread(_pump, f"watch-{number}", stream, arrived, done) for number, stream in enumerate(streams)]
    for thread in threads:
        thread.start()
    try:
        while active():
            try:
                message = arrived.get(timeout=CHECK_EVERY_S)
            except queue.Empty:
                continue
            if isinstance(message, _Ended):
                raise message.error
            yield message
    finally:
        # The stores' calls end with the caller's call. A thread that waits for capacity in the queue stops by `done`.
        done.set()


def _pump(stream: Iterator[WatchAnswer], arrived: queue.Queue[WatchAnswer | _Ended], done: threading.Event) -> None:
    try:
        for message in stream:
            if not _put(arrived, message, done):
                return
        error: BaseException = Unavailable("a store ended the watch", reason="watch_ended", retry_after_s=0.1)
    except BaseException as broken:
        error = broken
    _put(arrived, _Ended(error), done)


def _put(arrived: queue.Queue[WatchAnswer | _Ended], message: WatchAnswer | _Ended, done: threading.Event) -> bool:
    while not done.is_set():
        try:
            arrived.put(message, timeout=CHECK_EVERY_S)
            return True
        except queue.Full:
            continue
    return False
