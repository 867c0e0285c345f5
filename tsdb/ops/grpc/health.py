"""Serves grpc.health.v1: the whole server under "", each partition under "partition-N".

Health checks need no token. They have separate threads and receipts, so other calls cannot delay them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from tsdb.model.errors import TsdbError
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.grpc.errors import abort
from tsdb.ops.grpc.messages import MessageLimits, MessageReader
from tsdb.ops.grpc.receive import Receipts
from tsdb.ops.grpc.threads import CallThreads

SERVICE = health.SERVICE_NAME
THREADS = 4  # A check takes microseconds once its request has arrived.
REQUEST_BYTES_MAX = 1024  # A request contains the name of a service.
_STATUS = health_pb2.HealthCheckResponse


def partition_service(partition: int) -> str:
    """The health service name of one partition of the log."""
    return f"partition-{partition}"


class Health:
    """State behind the health checks. Every service is NOT_SERVING until `set`. Thread-safe."""

    def __init__(self) -> None:
        self._threads = CallThreads(THREADS, "grpc-health")
        self.receipts = Receipts(THREADS, self._threads)
        self._reader = MessageReader(
            health_pb2.HealthCheckRequest.DESCRIPTOR,
            health_pb2.HealthCheckRequest.FromString,
            RequestBytes(REQUEST_BYTES_MAX << 10),
            MessageLimits(REQUEST_BYTES_MAX, REQUEST_BYTES_MAX),
        )
        self._servicer: Any = health.HealthServicer(experimental_non_blocking=True)
        self.set("", serving=False)

    def set(self, service: str, serving: bool) -> None:
        """`service`: "" for the whole server, or `partition_service(n)`. Has no effect after `drain`."""
        self._servicer.set(service, _STATUS.SERVING if serving else _STATUS.NOT_SERVING)

    def drain(self) -> None:
        """Report NOT_SERVING for every service from now on."""
        self._servicer.enter_graceful_shutdown()

    def add_to(self, server: grpc.Server) -> None:
        handlers = {
            "Check": grpc.stream_unary_rpc_method_handler(
                self._on_own_threads(self._servicer.Check),
                response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
            ),
            "Watch": grpc.stream_stream_rpc_method_handler(
                self._on_own_threads(self._servicer.Watch, experimental_non_blocking=True),
                response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
            ),
        }
        register: Any = server.add_registered_method_handlers  # type: ignore[attr-defined]  # the stubs do not know it
        register(SERVICE, handlers)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def _on_own_threads(self, behavior: Callable[..., Any], **attributes: bool) -> Callable[..., Any]:
        def answer(messages: Iterator[bytes], context: grpc.ServicerContext, *send: Any) -> Any:
            try:
                with self.receipts.receive_one(self._reader, messages, context) as request:
                    message = request.message()
            except TsdbError as error:
                abort(context, error)
            return behavior(message, context, *send)

        answer.__dict__.update(attributes, experimental_thread_pool=self._threads)  # gRPC reads the attribute.
        return answer
