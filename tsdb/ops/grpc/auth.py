"""The bearer token of a gRPC call, and its quota, checked before the call's request is read.

Health checks need none: probes have no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import grpc

from tsdb.model.errors import TsdbError, Unauthenticated
from tsdb.ops.auth import Tokens, log_failure
from tsdb.ops.grpc.calls import HEALTH_PREFIX, Continuation, Handler, Interceptor

Metadata = Iterable[tuple[str, str | bytes]]
Admit = Callable[[str | bytes | None], None]
"""Called with the authorization of a call before its request is read; raises a TsdbError to refuse it."""


def authorization_of(metadata: Metadata) -> str | bytes | None:
    """The authorization header of a call; None without one."""
    return next((value for key, value in metadata if key == "authorization"), None)


class AdmitCheck(Interceptor):
    """Lets a service refuse a call before its request is read. admits: functions by the prefix of the service's
    methods."""

    def __init__(self, admits: Mapping[str, Admit]) -> None:
        self._admits = admits

    def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        admit = self._admits.get(handler_call_details.method.rpartition("/")[0])
        if admit is not None:
            try:
                admit(authorization_of(handler_call_details.invocation_metadata))
            except TsdbError as error:
                return _refusal(error)
        return continuation(handler_call_details)


class TokenCheck(Interceptor):
    """Refuses calls without a valid `authorization: Bearer TOKEN`."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if handler_call_details.method.startswith(HEALTH_PREFIX):
            return continuation(handler_call_details)
        try:
            self._tokens.check(authorization_of(handler_call_details.invocation_metadata), server="grpc")
        except Unauthenticated as error:
            return _refusal(error, partial(log_failure, error, "grpc"))
        return continuation(handler_call_details)


def _refusal(error: TsdbError, log_peer: Callable[[str], None] = lambda _peer: None) -> Handler:
    def refuse(_requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        log_peer(context.peer())
        raise error

    # Every kind of method gets a stream handler. gRPC then reads no request, so an unknown caller cannot fill memory.
    return grpc.stream_stream_rpc_method_handler(refuse)
