"""A reader between a client and a real one, over gRPC: passes every call on, and changes answers as a test sets it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np

from tsdb.v1 import reader_pb2, reader_pb2_grpc

METHODS = ("Select", "Query", "Series", "Coverage", "LabelNames", "LabelValues")
Lie = Callable[[str, Any, Iterator[Any]], Iterator[Any]]
"""(method, request, messages of the true answer) -> messages."""


class LyingReader:
    """A context manager; `address` to call. lie: None passes answers on unchanged. released: an event; calls wait until
    it is set.

    calls: the number of calls by method.
    """

    def __init__(self, real_address: str) -> None:
        self.lie: Lie | None = None
        self.calls: dict[str, int] = dict.fromkeys(METHODS, 0)
        self.released = threading.Event()
        self.released.set()
        self._channel = grpc.insecure_channel(real_address)
        self._stub = reader_pb2_grpc.ReaderStub(self._channel)
        self._server = grpc.server(ThreadPoolExecutor(8))
        handlers = {method: self._handler(method) for method in METHODS}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("tsdb.v1.Reader", handlers)])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.stop(None).wait()
        self._channel.close()

    def _handler(self, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        wire = reader_pb2.DESCRIPTOR.services_by_name["Reader"].methods_by_name[method]
        request, response = (getattr(reader_pb2, kind.name) for kind in (wire.input_type, wire.output_type))
        streams = wire.server_streaming
        make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler

        def answers(message: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self.calls[method] += 1
            self.released.wait()
            try:
                found = getattr(self._stub, method)(message, timeout=context.time_remaining(), metadata=_token(context))
                true = iter(found) if streams else iter((found,))
                yield from self.lie(method, message, true) if self.lie is not None else true
            except grpc.RpcError as error:
                call: Any = error
                context.set_trailing_metadata(call.trailing_metadata() or ())
                context.abort(call.code(), call.details())

        behaviour = answers if streams else lambda message, context: next(answers(message, context))
        return make(behaviour, request.FromString, response.SerializeToString)


def _token(context: grpc.ServicerContext) -> list[tuple[str, str | bytes]]:
    return [(key, value) for key, value in context.invocation_metadata() if key == "authorization"]


def without_first_samples(method: str, _request: Any, messages: Iterator[Any]) -> Iterator[Any]:
    """A Select answer that lacks the first sample of each frame and is complete by its trailer."""
    lost = 0
    for message in messages:
        if method == "Select":
            for frame in message.raw:
                counts = np.frombuffer(frame.counts, "<u4").copy()
                if counts.any():
                    counts[np.flatnonzero(counts)[0]] -= 1
                    frame.counts = counts.tobytes()
                    frame.ts_ms, frame.values = frame.ts_ms[8:], frame.values[8:]
                    lost += 1
            if message.HasField("trailer"):
                message.trailer.samples -= lost
        yield message


def with_wrong_value(method: str, _request: Any, messages: Iterator[Any]) -> Iterator[Any]:
    """A Select or Query answer whose first value of each frame has another bit: it is wrong by some percent."""
    for message in messages:
        frames = message.raw if method == "Select" else [message.frame] if method == "Query" else []
        for frame in frames:
            if frame.values:
                frame.values = frame.values[:6] + bytes([frame.values[6] ^ 1]) + frame.values[7:]
        yield message
