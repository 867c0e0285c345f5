"""ShadowTarget: connects to a shadow, tries each read once, and checks that the shadow has the same log.

A store as a shadow may hold some partitions of the log. It gets the part of a read that these can answer, and is
compared in these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import grpc
from google.protobuf.message import Message

from tsdb.client import QueryResult, SelectResult
from tsdb.client.call import STREAMING, Method, stub_methods
from tsdb.client.channel import ClientTls, call_metadata, open_channel
from tsdb.client.failures import Peer, call_error
from tsdb.client.query import query
from tsdb.client.select import SelectAnswer
from tsdb.model.errors import ConfigMismatch, Overloaded, Unavailable
from tsdb.query.shadow.shadow_metrics import shadow_partitions
from tsdb.v1 import common_pb2, reader_pb2
from tsdb.wire.state import coverage_states

HEADER = "tsdb-shadow"  # Header of each call to a shadow. A querier passes a read with it to no other shadow.
COVERAGE_TIMEOUT_S = 2.0


class ShadowTarget:
    """Thread-safe. Connects at its first call. bytes_max: bound of one answer. experiment, partitions: those of the
    shadow at the last `check_log`; experiment is empty for production."""

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
        self.experiment = ""
        self.partitions: frozenset[int] = frozenset()
        self._topic_id = topic_id
        self._peer = Peer(address, tls is not None)
        self._channel = open_channel(address, tls)
        self._methods = stub_methods(self._channel)
        self._metadata = [*(call_metadata(token) or ()), (HEADER, "1")]
        self._timeout_s = timeout_s
        self._bytes_max = bytes_max

    def read(self, method: Method, request: Message) -> SelectResult | QueryResult:
        """The answer of the shadow. Raises the shadow's TsdbError, and ConfigMismatch (shadow_log) as `check_log`
        does."""
        answer = decoded(method, request, self._call(method, request, self._timeout_s))
        if isinstance(answer, SelectResult):
            self._check_topics(answer.partitions)
        return answer

    def part_of(self, method: Method, request: Any) -> Any:
        """The request for the partitions that the shadow holds; None: there is no such one. A query has no partitions,
        so it is for all of them."""
        wanted = set(request.options.partitions) if method is Method.SELECT else set()
        if not wanted and not (method is Method.SELECT and request.options.after):
            return request
        part = reader_pb2.SelectRequest()
        part.CopyFrom(request)
        del part.options.partitions[:], part.options.after[:]
        part.options.partitions.extend(sorted(wanted & self.partitions))
        part.options.after.extend(token for token in request.options.after if token.partition in self.partitions)
        return part if part.options.partitions or not wanted else None

    def check_log(self) -> None:
        """Raises ConfigMismatch (shadow_log) for a shadow of another log, Unavailable (shadow_without_partitions) for
        one that shows no partition yet, and the error of one that does not answer."""
        (answer,) = self._call(Method.COVERAGE, reader_pb2.CoverageRequest(), COVERAGE_TIMEOUT_S)
        states = coverage_states(answer)
        self._check_topics(states)
        if not states:
            raise Unavailable(
                f"shadow {self.address} shows no partition, so its log is not known yet",
                reason="shadow_without_partitions",
            )
        self.experiment = answer.experiment.name
        self.partitions = frozenset(state.partition for state in states)
        shadow_partitions.set(len(self.partitions))

    def _check_topics(self, states: Iterable[common_pb2.PartitionState]) -> None:
        others = {state.topic_id for state in states} - {self._topic_id}
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
        """All messages of a stream. A stream that does not end is cut at bytes_max."""
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


def decoded(
    method: Method, request: Any, messages: Iterable[Message | bytes], partitions: Collection[int] | None = None
) -> SelectResult | QueryResult:
    """Decode an answer of Select or Query as the client does. partitions: leave out the other partitions of a Select;
    None: keep all.

    Raises CorruptData, or Unavailable (answer_cut).

    """
    if method is Method.SELECT:
        reader = SelectAnswer(request.start_ms, request.end_ms, partitions)
        for message in messages:
            reader.add(reader_pb2.SelectResponse.FromString(message) if isinstance(message, bytes) else message)
        return reader.finish()
    answer = query(request.query, request.start_ms).reader()
    for message in messages:
        answer.add(message)
    return answer.finish()
