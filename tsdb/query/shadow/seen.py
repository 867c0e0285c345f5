"""The hook through which answers pass on their way to the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from tsdb.promql.evaluate.query import EvaluationResult
from tsdb.v1 import reader_pb2

Encoded = TypeVar("Encoded", bound=bytes | Message)


class AnswerObserver(Protocol):
    """Sees answers. It changes none of them, raises nothing, and waits for nothing."""

    def answer(
        self, method: str, request: Message, context: grpc.ServicerContext, messages: Iterator[Encoded]
    ) -> Iterator[Encoded]:
        """The captured answer's messages in their order. method: `Select` or `Query` of Reader."""

    def result(self, request: Callable[[], reader_pb2.QueryRequest], result: EvaluationResult, seconds: float) -> None:
        """A result that is answered in another form than that of Reader.Query, and its request in that form."""
