"""ClientCall describes a call as plain data: method, request, and a reader that builds the result from the answer's
messages.

The modules select, read and write build calls; the sync and asyncio clients only execute them. So requests and answers
are implemented once and tested without a network.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from tsdb.v1 import ingest_pb2_grpc, reader_pb2_grpc

Answer = TypeVar("Answer")
AnswerOut = TypeVar("AnswerOut", covariant=True)


class Method(enum.Enum):
    """Methods of both services; the value is the name on the wire."""

    WRITE = "Write"
    SELECT = "Select"
    SERIES = "Series"
    LABEL_NAMES = "LabelNames"
    LABEL_VALUES = "LabelValues"
    CARDINALITY = "Cardinality"
    QUERY = "Query"
    QUERIES = "Queries"
    CANCEL_QUERY = "CancelQuery"
    COVERAGE = "Coverage"
    WATCH = "Watch"


STREAMING = frozenset({Method.SELECT, Method.SERIES, Method.QUERY, Method.WATCH})


class AnswerReader(Protocol[AnswerOut]):
    """Collects the messages of one answer, in order, and builds the result. Each attempt has a new reader."""

    def add(self, message: Any) -> None:
        """Keep one message; expensive work is left to `finish`."""

    def finish(self) -> AnswerOut:
        """The result, after the last message. Raises CorruptData or Unavailable for an incomplete answer."""


@dataclass(frozen=True, slots=True)
class ClientCall(Generic[Answer]):
    """One call of the client. `reader` creates a reader for each attempt."""

    method: Method
    request: Message
    reader: Callable[[], AnswerReader[Answer]]


class Single(Generic[Answer]):
    """Reader of an answer that is one message."""

    def __init__(self, parse: Callable[[Any], Answer]) -> None:
        self._parse = parse
        self._message: Any = None

    def add(self, message: Any) -> None:
        self._message = message

    def finish(self) -> Answer:
        return self._parse(self._message)


def stub_methods(channel: Any) -> dict[Method, Any]:
    """The callables of both services on a sync or asyncio channel."""
    ingest = ingest_pb2_grpc.IngestStub(channel)
    reader = reader_pb2_grpc.ReaderStub(channel)
    return {method: getattr(ingest if method is Method.WRITE else reader, method.value) for method in Method}
