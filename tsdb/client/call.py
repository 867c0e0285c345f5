"""A call as plain data: which method, which request, and what makes the answer of its messages.

The modules named by noun (select, read, write) build calls; the sync and the asyncio client only carry them out. So
everything about requests and answers exists once and is tested without a network.
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
    """The methods of both services; the value is the name on the wire."""

    WRITE = "Write"
    SELECT = "Select"
    SERIES = "Series"
    LABEL_NAMES = "LabelNames"
    LABEL_VALUES = "LabelValues"
    COVERAGE = "Coverage"
    WATCH = "Watch"


STREAMING = frozenset({Method.SELECT, Method.SERIES, Method.WATCH})


class AnswerReader(Protocol[AnswerOut]):
    """Takes the messages of one answer, in order, and makes the result of them. One per attempt."""

    def add(self, message: Any) -> None:
        """One message. Keeps it; heavy work waits for `finish`."""

    def finish(self) -> AnswerOut:
        """The result, after the last message. Raises CorruptData or Unavailable for an answer that is not whole."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One call. `reader` makes a fresh reader for every attempt."""

    method: Method
    request: Message
    reader: Callable[[], AnswerReader[Answer]]


class Single(Generic[Answer]):
    """Reader of an answer of one message."""

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
