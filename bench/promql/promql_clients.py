"""Clients of bench/promql: connections that stay open, on which whole answers are read to the last byte."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

TIMEOUT_S = 120.0
BUFFER_BYTES = 1 << 20


class PromqlConnection:
    """One connection to HOST:PORT, for one thread. A context manager. refusals: codes of refusals that count as
    answers.
    """

    def __init__(self, address: str, refusals: Collection[int] = ()) -> None:
        self._accepted = frozenset({200, *refusals})
        self._connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        self._buffer = bytearray(BUFFER_BYTES)

    def read(self, path: str) -> int:
        """Bytes of the answer's body, which are read and dropped. Raises RuntimeError for another code."""
        answer = self._answer(path)
        size = 0
        while count := answer.readinto(self._buffer):
            size += count
        return size

    def body(self, path: str) -> bytes:
        """The answer's body. Raises RuntimeError for another code."""
        return self._answer(path).read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def _answer(self, path: str) -> http.client.HTTPResponse:
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        if answer.status not in self._accepted:
            raise RuntimeError(f"{answer.status} {answer.read(500)!r} for {path}")
        return answer


class Clients:
    """`count` clients that send requests at once. path: path of the request with a number; no number comes twice.

    seconds: the duration of each answer. answer_bytes: the size of the largest one.
    """

    def __init__(self, address: str, path: Callable[[int], str], count: int) -> None:
        self._address = address
        self._path = path
        self._count = count
        self._turns = itertools.count()
        self._failures: list[BaseException] = []
        self.seconds: list[float] = []
        self.answer_bytes = 0

    def run(self, seconds: float, least: int) -> None:
        """Ask for some seconds, and until there are `least` answers. Raises the first error of a client."""
        until = time.perf_counter() + seconds
        threads = [threading.Thread(target=self._go, args=(until, least)) for _ in range(self._count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _go(self, until: float, least: int) -> None:
        try:
            with PromqlConnection(self._address) as client:
                # A connection is made and its thread is started before the first answer is measured.
                client.read("/-/ready")
                while time.perf_counter() < until or len(self.seconds) < least:
                    self._ask(client, self._path(next(self._turns)))
        except BaseException as error:
            self._failures.append(error)

    def _ask(self, client: PromqlConnection, path: str) -> None:
        started = time.perf_counter()
        size = client.read(path)
        self.seconds.append(time.perf_counter() - started)
        self.answer_bytes = max(self.answer_bytes, size)
