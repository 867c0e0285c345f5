"""The bearer token of a gRPC call, checked before its request is read.

Health checks need none: probes have no secret.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from tsdb.model.errors import Unauthenticated
from tsdb.ops.auth import Tokens
from tsdb.ops.grpc.calls import HEALTH_PREFIX, Continuation, Handler, Interceptor


class TokenCheck(Interceptor):
    """Refuses calls without a valid `authorization: Bearer TOKEN`."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if handler_call_details.method.startswith(HEALTH_PREFIX):
            return continuation(handler_call_details)
        shown = [value for key, value in handler_call_details.invocation_metadata if key == "authorization"]
        try:
            self._tokens.check(shown[0] if shown else None, server="grpc")
        except Unauthenticated as error:
            return _refusal(error)
        return continuation(handler_call_details)


def _refusal(error: Unauthenticated) -> Handler:
    def refuse(_requests: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
        raise error

    # A stream handler for every kind of method: gRPC then reads no request, so an unknown caller cannot fill memory.
    return grpc.stream_stream_rpc_method_handler(refuse)
