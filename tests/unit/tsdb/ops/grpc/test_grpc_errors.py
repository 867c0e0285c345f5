"""Every error class crosses a real server and comes back as itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from support.counters import sample
from support.fakes.grpc_echo import Scripted, call_raw, plain_channel, scripted_server, write
from tsdb.model import errors
from tsdb.ops.grpc.errors import CODES, code_of, from_rpc_error, to_status
from tsdb.v1 import ingest_pb2

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.TsdbError) and not cls.__name__.startswith("_")
]


def raised_by(servicer: Scripted) -> grpc.RpcError:
    with scripted_server(servicer) as server, plain_channel(server) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            write(channel)
        return caught.value


def raising(error: BaseException) -> Callable[[grpc.ServicerContext], None]:
    def act(_context: grpc.ServicerContext) -> None:
        raise error

    return act


def test_every_class_has_a_row_in_the_table() -> None:
    assert set(CODES) == set(CLASSES)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_class_comes_back_as_itself(cls: type[errors.TsdbError]) -> None:
    sent = cls("partition 3 lags", reason="some_reason", partition=3, lag_ms=70_000)
    got = from_rpc_error(raised_by(Scripted(raising(sent))))
    assert type(got) is cls
    assert (got.message, got.reason, got.metadata) == (
        "partition 3 lags",
        "some_reason",
        {"partition": "3", "lag_ms": "70000"},
    )


@pytest.mark.parametrize("cls", [errors.Unavailable, errors.Overloaded])
def test_the_retry_hint_comes_back(cls: type[errors.Unavailable] | type[errors.Overloaded]) -> None:
    got = from_rpc_error(raised_by(Scripted(raising(cls("later", retry_after_s=0.25)))))
    assert isinstance(got, errors.Unavailable | errors.Overloaded)
    assert got.retry_after_s == 0.25


@pytest.mark.parametrize(
    ("cls", "code"),
    [
        (errors.InvalidRequest, "INVALID_ARGUMENT"),
        (errors.WrongTopic, "INVALID_ARGUMENT"),
        (errors.Unavailable, "UNAVAILABLE"),
        (errors.Overloaded, "RESOURCE_EXHAUSTED"),
        (errors.CorruptData, "DATA_LOSS"),
        (errors.HoleInRange, "DATA_LOSS"),
        (errors.OutOfCoverage, "OUT_OF_RANGE"),
        (errors.Unauthenticated, "UNAUTHENTICATED"),
        (errors.ConfigMismatch, "FAILED_PRECONDITION"),
        (errors.TsdbError, "INTERNAL"),
    ],
)
def test_codes_are_those_that_the_protocol_states(cls: type[errors.TsdbError], code: str) -> None:
    assert code_of(cls("x")).name == code


def test_a_subclass_unknown_to_the_table_travels_as_its_base() -> None:
    class SampleTooOld(errors.InvalidRequest):
        pass

    got = from_rpc_error(raised_by(Scripted(raising(SampleTooOld("old", reason="too_old")))))
    assert (type(got), got.reason) == (errors.InvalidRequest, "too_old")


def test_a_bug_is_internal_and_tells_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    got = raised_by(Scripted(raising(KeyError("secret detail"))))
    mine = from_rpc_error(got)
    assert got.code() is grpc.StatusCode.INTERNAL
    assert "secret detail" not in mine.message
    assert any("call failed" in record.getMessage() for record in caplog.records)


def test_a_servicer_may_abort_by_itself() -> None:
    def act(context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.NOT_FOUND, "nothing here")

    got = raised_by(Scripted(act))
    assert (got.code(), got.details()) == (grpc.StatusCode.NOT_FOUND, "nothing here")


def test_texts_beyond_what_headers_carry_are_cut() -> None:
    huge = {f"key_{i}": "\u00e4" * 5_000 for i in range(40)}
    sent = errors.InvalidRequest("\u00fc" * 100_000, reason="too_long", **huge)
    got = from_rpc_error(raised_by(Scripted(raising(sent))))
    assert (type(got), got.reason) == (errors.InvalidRequest, "too_long")
    assert got.message.startswith("\u00fc\u00fc")
    assert got.message.endswith("...")
    assert to_status(sent).ByteSize() < 8192


def test_lone_surrogates_in_a_text_do_not_break_the_answer() -> None:
    got = from_rpc_error(raised_by(Scripted(raising(errors.InvalidRequest("label \udcff", value="\udcff")))))
    assert type(got) is errors.InvalidRequest


def test_a_peer_cannot_smuggle_constructor_parameters() -> None:
    got = from_rpc_error(raised_by(Scripted(raising(_with_metadata({"message": "x", "retry_after_s": "y"})))))
    assert got.metadata == {"message": "x", "retry_after_s": "y"}


def _with_metadata(metadata: dict[str, str]) -> errors.TsdbError:
    error = errors.Unavailable("text")
    error.metadata = metadata
    return error


class Bare(grpc.RpcError):
    """An error as gRPC itself raises it: a code, a text, perhaps trailers."""

    def __init__(self, code: grpc.StatusCode, details: str = "", trailers: tuple[tuple[str, bytes], ...] = ()) -> None:
        self._answers = (code, details, trailers)

    def code(self) -> grpc.StatusCode:
        return self._answers[0]

    def details(self) -> str:
        return self._answers[1]

    def trailing_metadata(self) -> Any:
        return self._answers[2]


@pytest.mark.parametrize(
    ("code", "text", "cls", "reason"),
    [
        ("UNAVAILABLE", "connection refused", errors.Unavailable, "unreachable"),
        ("DEADLINE_EXCEEDED", "", errors.Unavailable, "deadline"),
        ("CANCELLED", "", errors.Unavailable, "cancelled"),
        ("RESOURCE_EXHAUSTED", "Concurrent RPC limit exceeded!", errors.Overloaded, "server_overloaded"),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max", errors.InvalidRequest, "message_too_large"),
        ("UNIMPLEMENTED", "Method not found!", errors.InvalidRequest, "unimplemented"),
        ("INTERNAL", "", errors.TsdbError, "internal"),
        ("UNKNOWN", "", errors.TsdbError, "internal"),
    ],
)
def test_what_grpc_itself_reports_has_a_class_too(
    code: str, text: str, cls: type[errors.TsdbError], reason: str
) -> None:
    got = from_rpc_error(Bare(grpc.StatusCode[code], text))
    assert (type(got), got.reason) == (cls, reason)
    assert got.message


def test_every_status_code_maps_to_some_class() -> None:
    for code in grpc.StatusCode:
        assert isinstance(from_rpc_error(Bare(code)), errors.TsdbError)


@pytest.mark.parametrize("junk", [b"\xff\xff\xff", b"\x0a", b"", b"\x1a\x02\x0a\xff"])
def test_malformed_details_fall_back_to_the_code(junk: bytes) -> None:
    got = from_rpc_error(Bare(grpc.StatusCode.UNAVAILABLE, "x", (("grpc-status-details-bin", junk),)))
    assert type(got) is errors.Unavailable


def test_a_deadline_and_a_dead_server_are_unavailable() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as channel, pytest.raises(grpc.RpcError) as caught:
        write(channel)
    assert from_rpc_error(caught.value).reason == "unreachable"


def test_requests_that_are_no_message_are_the_callers_error_with_a_counter() -> None:
    method = "/tsdb.v1.Ingest/Write"
    before = sample("tsdb_grpc_errors_total", method=method, reason="malformed_request")
    with scripted_server(Scripted()) as server, plain_channel(server) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            call_raw(channel, method, b"\xff" * 32)
        got = from_rpc_error(caught.value)
        assert (type(got), got.reason) == (errors.InvalidRequest, "malformed_request")
        assert re.search("not a valid message", got.message)
        assert ingest_pb2.WriteResponse.FromString(call_raw(channel, method, b"")).samples == 0
    assert sample("tsdb_grpc_errors_total", method=method, reason="malformed_request") == before + 1
