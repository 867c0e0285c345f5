"""Calls: the outermost interceptor. It receives requests, assigns slots, maps errors to statuses, counts and times.

The steps of each call have one order: token (an inner interceptor), receipt, size, message, gate, slot. A call beyond
the bound is refused at once, instead of waiting in an unbounded queue without a metric. A request that does not parse
as its message type is the caller's error, as is every other bad input. Health checks skip all of this
(tsdb.ops.grpc.health). Methods in `GrpcService.always` need no slot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf import descriptor_pool

from tsdb.model.errors import TsdbError
from tsdb.ops.grpc.errors import abort, code_of
from tsdb.ops.grpc.messages import MessageLimits, MessageReader
from tsdb.ops.grpc.receive import Receipts
from tsdb.ops.grpc.senders import Senders, StreamSender
from tsdb.ops.grpc.slots import CallSlots, Slot
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, histogram

log = get_logger(__name__)

_requests = counter("tsdb_grpc_requests_total", "Finished gRPC calls by status code.", ("method", "code"))
_errors = counter(
    "tsdb_grpc_errors_total", "gRPC calls ended by an error of ours, by its reason.", ("method", "reason")
)
_seconds = histogram("tsdb_grpc_duration_seconds", "From a call's start to its last byte handed to gRPC.", "method")

# Bytes of one request in a stream of requests. Only reflection streams requests, and its answer repeats the request.
STREAMED_BYTES_MAX = 4096
HEALTH_PREFIX = "/grpc.health.v1.Health/"

# The stubs make both classes generic in request and response. An interceptor handles all methods, and the classes at
# run time are not generic.
if TYPE_CHECKING:
    Interceptor = grpc.ServerInterceptor[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
else:
    Interceptor = grpc.ServerInterceptor
    Handler = grpc.RpcMethodHandler
Continuation = Callable[[grpc.HandlerCallDetails], "Handler | None"]


class Calls(Interceptor):
    """`methods`: full names ("/package.Service/Method") of all methods. `always`: methods that need no slot. `patient`:
    methods that wait for a slot. `requests`: limits of one request by service.
    """

    def __init__(
        self,
        methods: list[str],
        receipts: Receipts,
        reader: Callable[..., MessageReader],
        requests: Mapping[str, MessageLimits],
        slots: CallSlots,
        senders: Senders,
        gate: Gate,
        *,
        always: frozenset[str],
        patient: frozenset[str] = frozenset(),
    ) -> None:
        self._receipts = receipts
        self._reader = reader
        self._slots = slots
        self._senders = senders
        self._gate = gate
        self._always = always
        self._patient = patient
        self._limits = requests
        self._handlers: dict[str, tuple[Handler, Handler]] = {}  # Inner and wrapped handler, by method.
        for method in methods:
            _requests.labels(method, grpc.StatusCode.OK.name)
            _seconds.labels(method)

    def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        method = handler_call_details.method
        handler = continuation(handler_call_details)
        if handler is None:
            # The name comes from the caller, so it must not become a label value.
            _requests.labels("unknown", grpc.StatusCode.UNIMPLEMENTED.name).inc()
            return None
        if method.startswith(HEALTH_PREFIX):
            return handler
        of, surrounded = self._handlers.get(method, (None, handler))
        if of is not handler:  # A method has the same handler for every call, unless the token check refuses the call.
            surrounded = self._surrounded(method, handler)
            self._handlers[method] = handler, surrounded
        return surrounded

    def _surrounded(self, method: str, handler: Handler) -> Handler:
        behavior = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        assert behavior is not None

        if handler.request_deserializer is None:  # A refusal of the token check: it reads no request.
            return _handler(partial(self._refuse, method, behavior), streams=True)
        input_type = descriptor_pool.Default().FindMethodByName(method[1:].replace("/", ".")).input_type
        limits = self._limits[method[1:].partition("/")[0]]
        if handler.request_streaming:
            limits = replace(limits, bytes_max=STREAMED_BYTES_MAX)
        reader = self._reader(input_type, handler.request_deserializer, limits=limits)

        def answer(messages: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            with (
                self._call(method, context),
                self._request(reader, messages, context) as request,
                self._slot(method, context) as slot,
            ):
                message: Any = behavior(request, context)
                size = len(message) if isinstance(message, bytes) else message.ByteSize()
                self._senders.watch_last(StreamSender(method, slot, context), size)
                return message

        def stream(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
            with (
                self._call(method, context),
                self._request(reader, messages, context) as request,
                self._slot(method, context) as slot,
            ):
                yield from self._sent(behavior(request, context), StreamSender(method, slot, context))

        def converse(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
            with self._call(method, context), self._slot(method, context) as slot:
                requests = self._requests(reader, messages, context)
                yield from self._sent(behavior(requests, context), StreamSender(method, slot, context))

        serialize = _bytes_or(handler.response_serializer)
        if handler.request_streaming:
            return _handler(converse, serialize, streams=True)
        streams = handler.response_streaming
        return _handler(stream if streams else answer, serialize, streams=streams)

    def _refuse(self, method: str, behavior: Any, messages: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        with self._call(method, context):
            yield from behavior(messages, context)

    @contextmanager
    def _request(
        self, reader: MessageReader, messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        """The single request of a call. Its bytes stay reserved until the call ends."""
        with self._receipts.receive_one(reader, messages, context) as request:
            yield request.message()

    def _requests(
        self, reader: MessageReader, messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        """The requests of a request stream. Only one at a time is in memory."""
        while (request := self._receipts.receive(reader, messages, context)) is not None:
            with request:
                yield request.message()

    def _sent(self, messages: Iterator[Any], sender: StreamSender) -> Iterator[Any]:
        """Pass on the messages of a stream, with the time of each hand-over in `sender.since` until gRPC takes it."""
        self._senders.add(sender)
        try:
            for message in messages:
                sender.since = time.monotonic()
                yield message
                sender.since = None
        finally:
            self._senders.remove(sender)

    @contextmanager
    def _call(self, method: str, context: grpc.ServicerContext) -> Iterator[None]:
        started = time.perf_counter()
        code = grpc.StatusCode.OK
        try:
            yield
        except TsdbError as error:
            code = code_of(error)
            _errors.labels(method, error.reason).inc()
            abort(context, error)
        except grpc.RpcError:  # The caller's stream broke during a read.
            code = grpc.StatusCode.CANCELLED
            raise
        except GeneratorExit:  # The caller disconnected before the end of the answer.
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            # This attribute is not in the stubs. It is set when the handler itself ended the call.
            aborted = cast(Any, context).code()
            if aborted is not None:
                code = aborted
                raise
            code = grpc.StatusCode.INTERNAL
            _errors.labels(method, "internal").inc()
            log.error("call failed", method=method, exc_info=error)
            abort(context, TsdbError("internal error; the server's log has the details"))
        finally:
            _requests.labels(method, code.name).inc()
            _seconds.labels(method).observe(time.perf_counter() - started)

    def _slot(self, method: str, context: grpc.ServicerContext) -> Slot:
        self._gate.check()
        if method in self._always:
            return self._slots.pass_by()
        if method in self._patient:
            return self._slots.enter_patiently(context.peer())
        return self._slots.enter(context.peer())


def _handler(
    behavior: Callable[..., Any], serialize: Callable[[Any], bytes] | None = None, *, streams: bool
) -> Handler:
    """A handler for any kind of method. It takes a request stream, so that our code decides when to read a request."""
    make: Any = grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler
    handler: Handler = make(behavior, response_serializer=serialize)
    return handler


def _bytes_or(serialize: Callable[[Any], bytes] | None) -> Callable[[Any], bytes]:
    # Answers of large arrays are encoded as bytes before they come here: see tsdb.wire.fields.
    def serialized(message: Any) -> bytes:
        return message if isinstance(message, bytes) or serialize is None else serialize(message)

    return serialized


class Gate:
    """Open until `close`. Any thread may change or check it."""

    def __init__(self) -> None:
        self._refusal: Callable[[], TsdbError] | None = None

    def close(self, refusal: Callable[[], TsdbError]) -> None:
        """Refuse calls from now on. `refusal` makes the error of one call."""
        self._refusal = refusal

    def open(self) -> None:
        self._refusal = None

    def check(self) -> None:
        """Raises the error of a refused call."""
        refusal = self._refusal
        if refusal is not None:
            raise refusal()
