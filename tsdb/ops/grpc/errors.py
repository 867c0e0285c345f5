"""Errors on the wire: maps our exceptions to gRPC statuses and back, for servers and clients.

A status has google.rpc.Status details: ErrorInfo (domain "kafka-tsdb", our reason and metadata) and, where a retry
helps, RetryInfo. No client has to parse text. Several exception classes share a code; the metadata key `error` names
the class.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_status import rpc_status

from tsdb.model import errors

DOMAIN = "kafka-tsdb"
CLASS_KEY = "error"
DETAILS_HEADER = "grpc-status-details-bin"

# Trailers are HTTP/2 headers, and peers limit those to 8 KiB. They contain the text twice, once percent-encoded.
MESSAGE_BYTES_MAX = 1024
VALUE_BYTES_MAX = 256
METADATA_MAX = 12

CODES: dict[type[errors.TsdbError], grpc.StatusCode] = {
    errors.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.WrongTopic: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    # A store whose offsets are gone from the log starts again from the log: the caller can retry this replica later.
    errors.LostOffsets: grpc.StatusCode.UNAVAILABLE,
    errors.Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.OutOfCoverage: grpc.StatusCode.OUT_OF_RANGE,
    errors.CorruptData: grpc.StatusCode.DATA_LOSS,
    errors.HoleInRange: grpc.StatusCode.DATA_LOSS,
    errors.UnknownVersion: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ConfigMismatch: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TsdbError: grpc.StatusCode.INTERNAL,
}
_CLASSES = {cls.__name__: cls for cls in CODES}

# Statuses that gRPC itself creates have no details of ours. Each maps to a class, which decides the caller's next step,
# and a reason, for counters.
_BARE: dict[grpc.StatusCode, tuple[type[errors.TsdbError], str]] = {
    grpc.StatusCode.UNAVAILABLE: (errors.Unavailable, "unreachable"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (errors.Unavailable, "deadline"),
    grpc.StatusCode.CANCELLED: (errors.Unavailable, "cancelled"),
    grpc.StatusCode.ABORTED: (errors.Unavailable, "aborted"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (errors.Overloaded, "server_overloaded"),
    grpc.StatusCode.UNAUTHENTICATED: (errors.Unauthenticated, "unauthenticated"),
    grpc.StatusCode.PERMISSION_DENIED: (errors.Unauthenticated, "permission_denied"),
    grpc.StatusCode.INVALID_ARGUMENT: (errors.InvalidRequest, "invalid_request"),
    grpc.StatusCode.UNIMPLEMENTED: (errors.InvalidRequest, "unimplemented"),
    grpc.StatusCode.NOT_FOUND: (errors.InvalidRequest, "not_found"),
    grpc.StatusCode.OUT_OF_RANGE: (errors.OutOfCoverage, "out_of_coverage"),
    grpc.StatusCode.DATA_LOSS: (errors.CorruptData, "corrupt_data"),
    grpc.StatusCode.FAILED_PRECONDITION: (errors.ConfigMismatch, "config_mismatch"),
}


def code_of(error: errors.TsdbError) -> grpc.StatusCode:
    """The status code of the error's class, else of its nearest base class in CODES."""
    return CODES[_wire_class(error)]


def to_status(error: errors.TsdbError) -> status_pb2.Status:
    """google.rpc.Status of an error. Texts are cut to fit into HTTP/2 headers."""
    info = ErrorInfo(domain=DOMAIN, reason=error.reason, metadata={CLASS_KEY: _wire_class(error).__name__})
    for key, value in list(error.metadata.items())[:METADATA_MAX]:
        info.metadata[key] = _cut(value, VALUE_BYTES_MAX)
    status = status_pb2.Status(code=code_of(error).value[0], message=_cut(error.message, MESSAGE_BYTES_MAX))
    status.details.add().Pack(info)
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        delay = Duration()
        delay.FromNanoseconds(round(retry_after_s * 1e9))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status


def abort(context: grpc.ServicerContext, error: errors.TsdbError) -> NoReturn:
    """Ends a call with the status of `error`; gRPC raises to unwind the handler."""
    context.abort_with_status(rpc_status.to_status(to_status(error)))
    raise AssertionError("abort_with_status always raises")


def from_rpc_error(error: grpc.RpcError) -> errors.TsdbError:
    """The exception that the server sent, or the one in _BARE for a status of gRPC itself. Takes sync and asyncio
    errors.

    The caller raises the result `from` the argument. Malformed details raise nothing; the bare code is used instead.

    """
    call: Any = error  # RpcError declares no methods; the objects that gRPC raises are also a Call.
    code, text = call.code(), call.details() or ""
    info, retry_after_s = _details(call.trailing_metadata() or ())
    if info is None:
        return _from_bare(code, text)
    metadata = dict(info.metadata)
    cls = _CLASSES.get(metadata.pop(CLASS_KEY, ""))
    if cls is None:
        cls = _BARE.get(code, (errors.TsdbError, ""))[0]
    return _build(cls, text, info.reason, retry_after_s, metadata)


def _from_bare(code: grpc.StatusCode, text: str) -> errors.TsdbError:
    cls, reason = _BARE.get(code, (errors.TsdbError, "internal"))
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        # gRPC's own limit on one message: a retry of the same message cannot succeed.
        cls, reason = errors.InvalidRequest, "message_too_large"
    return _build(cls, text or code.name, reason, None, {})


def _build(
    cls: type[errors.TsdbError], text: str, reason: str, retry_after_s: float | None, metadata: dict[str, str]
) -> errors.TsdbError:
    if issubclass(cls, errors.Unavailable | errors.Overloaded):
        error: errors.TsdbError = cls(text, reason=reason, retry_after_s=retry_after_s)
    else:
        error = cls(text, reason=reason)
    # Assigned, not passed as keyword arguments: the peer chooses the keys, and a key may equal a parameter's name.
    error.metadata = metadata
    return error


def _details(trailers: Iterable[tuple[str, str | bytes]]) -> tuple[ErrorInfo | None, float | None]:
    info, retry_after_s = None, None
    for key, value in trailers:
        if key != DETAILS_HEADER or not isinstance(value, bytes):
            continue
        try:
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                candidate, retry = ErrorInfo(), RetryInfo()
                if detail.Unpack(candidate) and candidate.domain == DOMAIN:
                    info = candidate
                elif detail.Unpack(retry):
                    retry_after_s = retry.retry_delay.ToNanoseconds() / 1e9
        except DecodeError:
            continue
    return info, retry_after_s


def _wire_class(error: errors.TsdbError) -> type[errors.TsdbError]:
    return next(cls for cls in type(error).__mro__ if cls in CODES)


def _cut(text: str, bytes_max: int) -> str:
    # Labels may contain invalid UTF-8. The error about such a label must still reach the caller.
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= bytes_max else data[: bytes_max - 3].decode("utf-8", "ignore") + "..."
