"""Every error of Cassandra's driver becomes one of ours, whose class is the caller's next step."""

from __future__ import annotations

import inspect

import cassandra
import pytest
from cassandra import cluster, connection, pool, protocol, query

from tsdb.history.cassandra.errors import _TABLE, is_busy, to_error, translate_cassandra_errors
from tsdb.history.statement_metrics import REASONS
from tsdb.model.errors import ConfigMismatch, Overloaded, TsdbError, Unavailable

MODULES = (cassandra, cluster, connection, pool, protocol, query)
ONLY_WITH_TRACING = {query.TraceUnavailable}


def driver_errors() -> list[type[BaseException]]:
    return [
        one
        for module in MODULES
        for _, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, BaseException) and one.__module__ == module.__name__ and one not in ONLY_WITH_TRACING
    ]


def made(kind: type[BaseException]) -> BaseException:
    error = kind.__new__(kind)
    error.args = ("what the server said",)
    # Messages of the protocol print these.
    error.__dict__.update(code=0, summary="summary", message="what the server said", info={}, errors={})
    return error


@pytest.mark.parametrize("kind", driver_errors(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_class_is_mapped_to_an_error_of_ours(kind: type[BaseException]) -> None:
    mapped = [ancestor for ancestor in kind.__mro__ if ancestor in _TABLE]
    assert mapped, f"{kind} has no line in the table"
    error = to_error(made(kind), "writing chunk")
    assert isinstance(error, TsdbError)
    assert "writing chunk" in error.message
    assert error.reason in {*REASONS}
    if isinstance(error, Unavailable | Overloaded):
        assert error.retry_after_s is not None


def no_host(*errors: BaseException) -> cluster.NoHostAvailable:
    return cluster.NoHostAvailable("no host", {f"host {number}": error for number, error in enumerate(errors)})


BUSY = connection.ConnectionBusy("overloaded")
DOWN = connection.ConnectionException("host has been marked down")


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (made(cassandra.OperationTimedOut), Unavailable, "timeout"),
        (made(cassandra.WriteTimeout), Unavailable, "timeout"),
        (made(cassandra.Unavailable), Unavailable, "unavailable"),
        (made(cassandra.WriteFailure), Unavailable, "store_error"),
        (made(protocol.OverloadedErrorMessage), Overloaded, "store_overloaded"),
        (no_host(), Unavailable, "unavailable"),
        (no_host(DOWN), Unavailable, "unavailable"),
        (no_host(BUSY), Overloaded, "connection_busy"),
        (no_host(BUSY, DOWN), Overloaded, "connection_busy"),
        (no_host(BUSY, made(protocol.OverloadedErrorMessage)), Unavailable, "unavailable"),
        (no_host(OSError(111, "refused")), Unavailable, "unavailable"),
        (no_host(cassandra.AuthenticationFailed("who?")), Unavailable, "store_unauthorized"),
        (cassandra.InvalidRequest("unconfigured table chunks"), ConfigMismatch, "store_not_created"),
        (cassandra.InvalidRequest("Keyspace nope does not exist"), ConfigMismatch, "store_not_created"),
        (cassandra.InvalidRequest("line 1: no viable alternative"), TsdbError, "internal"),
        (ConnectionResetError("reset"), Unavailable, "unavailable"),
        (ValueError("not the driver's"), TsdbError, "internal"),
    ],
)
def test_the_class_of_an_error_is_the_next_action(error: BaseException, kind: type[TsdbError], reason: str) -> None:
    got = to_error(error, "here")
    assert type(got) is kind
    assert got.reason == reason


def test_only_a_statement_that_was_never_sent_is_busy() -> None:
    assert is_busy(no_host(BUSY))
    assert is_busy(no_host(pool.NoConnectionsAvailable()))
    assert not is_busy(no_host(DOWN))
    assert not is_busy(made(cassandra.OperationTimedOut))


def test_the_drivers_exceptions_are_raised_as_ours_and_others_as_they_are() -> None:
    with pytest.raises(Unavailable), translate_cassandra_errors("here"):
        raise no_host(DOWN)
    with pytest.raises(Unavailable), translate_cassandra_errors("here"):
        raise ConnectionRefusedError(111, "refused")
    with pytest.raises(ZeroDivisionError), translate_cassandra_errors("here"):
        _ = 1 / 0
    with pytest.raises(ConfigMismatch), translate_cassandra_errors("here"):
        raise ConfigMismatch("ours already")
