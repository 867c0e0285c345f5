"""Translates errors of Cassandra's driver to TsdbError: one table, one function, one context manager.

The driver has two classes for most answers of a server, a public one and one of its protocol module; both occur. An
error that is not in the table is a bug here or in the driver: it stops the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cassandra
from cassandra import cluster, connection, pool, protocol

from tsdb.model.errors import ConfigMismatch, Overloaded, TsdbError, Unavailable

RETRY_AFTER_S = 1.0

_Kind = tuple[type[TsdbError], str]

_AWAY: _Kind = (Unavailable, "unavailable")
_LATE: _Kind = (Unavailable, "timeout")
_FAILED: _Kind = (Unavailable, "store_error")
_DENIED: _Kind = (Unavailable, "store_unauthorized")
_LOADED: _Kind = (Overloaded, "store_overloaded")
_BUSY: _Kind = (Overloaded, "connection_busy")
_MISSING: _Kind = (ConfigMismatch, "store_not_created")
_BUG: _Kind = (TsdbError, "internal")

# The nearest class of an error's ancestry counts.
_TABLE: dict[type[BaseException], _Kind] = {
    # Too few replicas answer, or none does; the state passes.
    cassandra.Unavailable: _AWAY,
    protocol.UnavailableErrorMessage: _AWAY,
    protocol.IsBootstrappingErrorMessage: _AWAY,
    cluster.NoHostAvailable: _AWAY,
    cassandra.UnresolvableContactPoints: _AWAY,
    connection.ConnectionException: _AWAY,
    connection.ProtocolError: _AWAY,
    OSError: _AWAY,
    # No answer came in time, so the row may or may not be stored.
    cassandra.Timeout: _LATE,
    cassandra.OperationTimedOut: _LATE,
    protocol.WriteTimeoutErrorMessage: _LATE,
    protocol.ReadTimeoutErrorMessage: _LATE,
    # A replica reported a failure.
    cassandra.CoordinationFailure: _FAILED,
    cassandra.CDCWriteFailure: _FAILED,
    protocol.ReadFailureMessage: _FAILED,
    protocol.WriteFailureMessage: _FAILED,
    protocol.CDCWriteException: _FAILED,
    protocol.ClientWriteError: _FAILED,
    protocol.ServerError: _FAILED,
    protocol.TruncateError: _FAILED,
    protocol.ProtocolException: _FAILED,
    protocol.PreparedQueryNotFound: _FAILED,
    protocol.InternalError: _FAILED,
    # Cassandra has too much load and asks for fewer requests.
    protocol.OverloadedErrorMessage: _LOADED,
    connection.ConnectionBusy: _BUSY,
    pool.NoConnectionsAvailable: _BUSY,
    # Wrong credentials, which an operator can correct while the process waits.
    cassandra.AuthenticationFailed: _DENIED,
    cassandra.Unauthorized: _DENIED,
    protocol.BadCredentials: _DENIED,
    protocol.UnauthorizedErrorMessage: _DENIED,
    # Statements that the server refuses, and errors that should never occur.
    cassandra.DriverException: _BUG,
    cassandra.DependencyException: _BUG,
    cluster.UserTypeDoesNotExist: _BUG,
    cluster.QueryExhausted: _BUG,
    protocol.NotSupportedError: _BUG,
    protocol.ErrorMessage: _BUG,
}
_NO_TABLE = ("unconfigured table", "does not exist", "undefined column")


def to_error(error: BaseException, where: str) -> TsdbError:
    """The TsdbError for an error of the driver. where: name of the request."""
    kind, reason = _kind_of(error)
    message = f"history, {where}: {error} ({type(error).__name__})"
    if issubclass(kind, Unavailable | Overloaded):
        return kind(message, reason=reason, retry_after_s=RETRY_AFTER_S)
    if kind is ConfigMismatch:
        message += ": run `tsdb history create`"
    return kind(message, reason=reason)


def is_busy(error: BaseException) -> bool:
    """Whether the only problem is that no connection has capacity for the bytes. Nothing was sent then, and a retry
    helps."""
    return _kind_of(error) == _BUSY


def _kind_of(error: BaseException) -> _Kind:
    if isinstance(error, cluster.NoHostAvailable) and isinstance(error.errors, dict):
        return _kind_of_all([one for one in error.errors.values() if isinstance(one, BaseException)])
    invalid = isinstance(error, cassandra.InvalidRequest | protocol.InvalidRequestException)
    if invalid and any(words in str(error).lower() for words in _NO_TABLE):
        return _MISSING
    return next((_TABLE[ancestor] for ancestor in type(error).__mro__ if ancestor in _TABLE), _BUG)


def _kind_of_all(errors: list[BaseException]) -> _Kind:
    """The kind of the errors of all hosts: load, timeout or credentials only if all hosts that were up report it."""
    kinds = {_kind_of(error) for error in errors} - {_AWAY}
    if len(kinds) == 1 and (kind := kinds.pop()) in (_BUSY, _LOADED, _DENIED, _LATE):
        return kind
    return _AWAY


@contextmanager
def translate_cassandra_errors(where: str) -> Iterator[None]:
    """Raise the driver's exceptions as TsdbError."""
    try:
        yield
    except TsdbError:
        raise
    except Exception as error:
        if not is_drivers(error):
            raise
        raise to_error(error, where) from error


def is_drivers(error: BaseException) -> bool:
    """Whether an exception comes from the driver or from the operating system."""
    return any(ancestor in _TABLE for ancestor in type(error).__mro__)
