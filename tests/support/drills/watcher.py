"""Watcher: a watch on its own thread that counts how often it receives each sample."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import Client, TsdbError, connect
from tsdb.v1 import common_pb2

Key = tuple[bytes, int]


class Watcher:
    """Follows a store from what it has applied at construction; reconnects as the client does. A context manager."""

    def __init__(self, store: Role, selector: str) -> None:
        self._client: Client = connect(store.grpc)
        self._selector = selector
        self._from = [_token(state) for state in self._client.coverage()]
        self._closing = False
        self._error: TsdbError | None = None
        self._given: Counter[tuple[int, int, int, int]] = Counter()
        self._keys: set[Key] = set()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._client.close()
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def samples(self) -> int:
        """Number of samples received, repeated ones included."""
        return self._given.total()

    @property
    def repeated(self) -> list[tuple[int, int, int, int]]:
        """(partition, record offset, series id, ts_ms) of samples received more than once."""
        return [place for place, times in self._given.items() if times > 1]

    def wait_for(self, keys: set[Key], within_s: float = 60.0) -> None:
        """Wait until each (labels, ts_ms) was received. Raises the error that ended the watch."""
        wait_until(lambda: keys <= self._keys or self._error is not None, within_s)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for batch in self._client.watch(self._selector, resume=self._from):
                columns = (batch.record_offsets.tolist(), batch.series_ids.tolist(), batch.ts_ms.tolist())
                for record_offset, series_id, ts_ms in zip(*columns, strict=True):
                    self._given[batch.partition, record_offset, series_id, ts_ms] += 1
                    self._keys.add((batch.canonical[series_id], ts_ms))
        except TsdbError as error:
            if not self._closing:
                self._error = error


def _token(state: common_pb2.PartitionState) -> common_pb2.Token:
    return common_pb2.Token(topic_id=state.topic_id, partition=state.partition, record_offset=state.next_offset - 1)
