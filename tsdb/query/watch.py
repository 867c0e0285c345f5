"""Watch over stores: the live tail of each partition from one store, all in one stream.

When one store's stream ends or breaks, the whole watch ends. The watcher resumes by its tokens, and routing then
chooses the next store.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from tsdb.model.errors import Unavailable
from tsdb.ops.threads import new_thread
from tsdb.query.sources import Sources
from tsdb.query.stores.routing import NO_START_MS, Routing, Share
from tsdb.reader.read_call import Caller
from tsdb.v1 import common_pb2, reader_pb2

Response = reader_pb2.WatchResponse

QUEUED_MAX = 64  # Messages queued for a slow watcher; when the queue is full, the stores' streams wait.
CHECK_EVERY_S = 0.5  # How soon a watcher that left is noticed on a quiet stream.


class WatchRead:
    """One call of Watch. resume: tokens to resume from, by partition."""

    def __init__(
        self,
        sources: Sources,
        request: reader_pb2.WatchRequest,
        resume: Mapping[int, int],
        caller: Caller,
    ) -> None:
        self._sources = sources
        self._request = request
        self._resume = resume
        self._caller = caller

    def responses(self, partitions: Sequence[int]) -> Iterator[Response]:
        """Messages of all partitions; those of one partition in order. Raises the error that ended a store's stream."""
        routing = Routing(self._sources.stores, self._sources.topic_id, NO_START_MS, history=False)
        shares = routing.shares(partitions)
        streams = [share.store.watch(self._part(share), self._caller) for share in shares]
        if len(streams) == 1:
            return streams[0]
        return _together(streams, self._caller.is_active)

    def _part(self, share: Share) -> reader_pb2.WatchRequest:
        part = reader_pb2.WatchRequest(matchers=self._request.matchers, partitions=share.partitions)
        getattr(part, "from").extend(  # The name of the field is a keyword of Python.
            common_pb2.Token(
                topic_id=self._sources.topic_id, partition=partition, record_offset=self._resume[partition]
            )
            for partition in share.partitions
            if partition in self._resume
        )
        return part


class _Ended:
    """Queue entry for the end of a stream, with its error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _together(streams: Sequence[Iterator[Response]], active: Callable[[], bool]) -> Iterator[Response]:
    """Messages of all streams in order of arrival, until one stream ends. One thread reads each stream."""
    arrived: queue.Queue[Response | _Ended] = queue.Queue(QUEUED_MAX)
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


def _pump(stream: Iterator[Response], arrived: queue.Queue[Response | _Ended], done: threading.Event) -> None:
    try:
        for message in stream:
            if not _put(arrived, message, done):
                return
        error: BaseException = Unavailable("a store ended the watch", reason="watch_ended", retry_after_s=0.1)
    except BaseException as broken:
        error = broken
    _put(arrived, _Ended(error), done)


def _put(arrived: queue.Queue[Response | _Ended], message: Response | _Ended, done: threading.Event) -> bool:
    while not done.is_set():
        try:
            arrived.put(message, timeout=CHECK_EVERY_S)
            return True
        except queue.Full:
            continue
    return False
