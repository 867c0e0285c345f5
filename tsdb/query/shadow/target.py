"""Target: the connection to a shadow, one attempt a read, and the check that it has the same log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import Message

from tsdb.client import QueryResult, SelectResult
from tsdb.client.call import STREAMING, AnswerReader, Method, stub_methods
from tsdb.client.channel import ClientTls, call_metadata, open_channel
from tsdb.client.failures import Peer, call_error
from tsdb.client.query import query
from tsdb.client.select import SelectAnswer
from tsdb.model.errors import ConfigMismatch, Overloaded
from tsdb.v1 import reader_pb2

HEADER = "tsdb-shadow"  # Of each call to a shadow: a querier passes such a read on to no other shadow.
COVERAGE_TIMEOUT_S = 2.0


class Target:
    """Thread-safe. Connects at its first call. bytes_max: of one answer."""

    def __init__(
        self,
        address: str,
        topic_id: str,
        *,
        tls: ClientTls | None = None,
        token: str | None = None,
        timeout_s: float,
        bytes_max: int,
    ) -> None:
        self.address = address
        self._topic_id = topic_id
        self._peer = Peer(address, tls is not None)
        self._channel = open_channel(address, tls)
        self._methods = stub_methods(self._channel)
        self._metadata = [*(call_metadata(token) or ()), (HEADER, "1")]
        self._timeout_s = timeout_s
        self._bytes_max = bytes_max

    def read(self, method: Method, request: Message) -> SelectResult | QueryResult:
        """The answer of the shadow. Raises its TsdbError."""
        return decoded(method, request, self._call(method, request, self._timeout_s))

    def check_log(self) -> None:
        """Raises ConfigMismatch (shadow_log) for a shadow of another log, and the error of one that does not answer."""
        (answer,) = self._call(Method.COVERAGE, reader_pb2.CoverageRequest(), COVERAGE_TIMEOUT_S)
        others = {state.topic_id for state in answer.partitions} - {self._topic_id}
        if others:
            raise ConfigMismatch(
                f"shadow {self.address} reads another log: its topic id is {others.pop()}, that of this querier is"
                f" {self._topic_id}; give a querier or store of the same log",
                reason="shadow_log",
            )

    def close(self) -> None:
        """End running calls with Unavailable (cancelled)."""
        self._channel.close()

    def _call(self, method: Method, request: Message, timeout_s: float) -> list[Any]:
        try:
            answer = self._methods[method](request, timeout=timeout_s, metadata=self._metadata)
            return self._whole(answer) if method in STREAMING else [answer]
        except grpc.RpcError as error:
            raise call_error(error, self._peer, method) from error

    def _whole(self, answer: Any) -> list[Any]:
        """All messages of a stream; one that does not end is cut at bytes_max."""
        found, size = [], 0
        for message in answer:
            size += message.ByteSize()
            if size > self._bytes_max:
                answer.cancel()
                raise Overloaded(
                    f"the answer of shadow {self.address} is above {self._bytes_max} bytes (shadow_bytes_max)",
                    reason="shadow_too_large",
                )
            found.append(message)
        return found


def decoded(method: Method, request: Any, messages: Iterable[Message]) -> SelectResult | QueryResult:
    """An answer of Select or Query as the client has it. Raises CorruptData, or Unavailable (answer_cut)."""
    reader: AnswerReader[Any] = (
        SelectAnswer(request.start_ms, request.end_ms)
        if method is Method.SELECT
        else query(request.query, request.start_ms).reader()
    )
    for message in messages:
        reader.add(message)
    found: SelectResult | QueryResult = reader.finish()
    return found
