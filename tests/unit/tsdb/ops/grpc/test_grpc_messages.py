"""The memory of a message is known before the message is expanded or parsed."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError
from tsdb.ops.grpc.messages import MessageReader, measure
from tsdb.ops.request_bytes import RequestBytes
from tsdb.v1 import common_pb2, ingest_pb2, reader_pb2

MIB = 1 << 20
EMPTY_LABELS = b"\x0a\x00"
LONG_TAG = b"\x8a\x80\x00\x00"  # The same field, its number written longer than it needs.
EMPTY_MATCHER = b"\x0a\x00"


def reader(
    kind: Any = ingest_pb2.WriteRequest,
    *,
    bytes_max: int = 16 * MIB,
    fields_max: int = 1000,
    held: RequestBytes | None = None,
) -> MessageReader:
    return MessageReader(
        kind.DESCRIPTOR,
        kind.FromString,
        held or RequestBytes(256 * MIB),
        bytes_max=bytes_max,
        fields_max=fields_max,
    )


def refused(reader: MessageReader, data: bytes) -> TsdbError:
    with pytest.raises(TsdbError) as caught, reader.take(data) as request:
        request.message()
    return caught.value


@given(
    labels=st.lists(st.binary(max_size=300), max_size=30),
    values=st.binary(max_size=300),
    partial=st.booleans(),
)
def test_fields_are_counted_as_the_parser_counts_them(labels: list[bytes], values: bytes, partial: bool) -> None:
    request = ingest_pb2.WriteRequest(labels=labels, values=values, partial=partial)
    data = request.SerializeToString()
    assert measure(data, frozenset(), 100).fields == len(labels) + bool(values) + partial


@given(st.binary(max_size=200))
def test_any_bytes_are_measured_or_refused(data: bytes) -> None:
    try:
        fields = measure(data, frozenset(), 50).fields
    except InvalidRequest:
        return
    assert 0 <= fields <= 51


@pytest.mark.parametrize("field", [EMPTY_LABELS, LONG_TAG, b"\x0a\x01x"])
def test_many_tiny_fields_are_refused_before_they_are_parsed(field: bytes) -> None:
    bomb = field * (8 * MIB // len(field))
    tracemalloc.start()
    try:
        error = refused(reader(), bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, InvalidRequest)
    assert (error.reason, error.metadata["limit"]) == ("message_too_large", "1000")
    assert peak < 4 * MIB


def test_many_samples_of_few_series_are_taken() -> None:
    ten = bytes(range(256)) * 4096  # Every tenth-of-a-label byte that there is, in sample arrays.
    request = ingest_pb2.WriteRequest(labels=[b"x"] * 900, ts_ms=ten * 4, values=ten * 4)
    with reader().take(request.SerializeToString()) as taken:
        assert taken.message() == request


def test_nested_messages_are_measured_by_what_they_become() -> None:
    options = EMPTY_MATCHER.replace(b"\x0a", b"\x1a") * 500_000  # ReadOptions.after, empty tokens.
    request = reader_pb2.SelectRequest()
    data = request.SerializeToString() + b"\x4a" + _varint(len(options)) + options
    error = refused(reader(reader_pb2.SelectRequest, held=RequestBytes(64 * MIB)), data)
    assert (type(error), error.reason) == (InvalidRequest, "message_too_large")


def test_a_read_of_many_series_by_id_is_taken() -> None:
    request = reader_pb2.SelectRequest(series_ids=b"\x0a" * 1_600_000)
    request.options.after.extend(common_pb2.Token(topic_id="t" * 22, partition=n, record_offset=n) for n in range(5000))
    with reader(reader_pb2.SelectRequest, held=RequestBytes(64 * MIB)).take(request.SerializeToString()) as taken:
        assert taken.message() == request


class TestGzip:
    def test_a_compressed_message_is_expanded(self) -> None:
        request = ingest_pb2.WriteRequest(labels=[b"x"], values=b"v" * 5000)
        with reader().take(gzip.compress(request.SerializeToString())) as taken:
            assert taken.message() == request

    def test_what_would_expand_past_the_limit_is_refused_without_expanding_it(self) -> None:
        bomb = gzip.compress(bytes(64 * MIB), 9)
        tracemalloc.start()
        try:
            error = refused(reader(), bomb)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (type(error), error.metadata["got"]) == (InvalidRequest, str(64 * MIB))
        assert peak < MIB

    @pytest.mark.parametrize("declared", [0, 10, 5 * MIB])
    def test_what_expands_to_other_than_it_declares_is_refused(self, declared: int) -> None:
        liar = gzip.compress(bytes(4 * MIB), 9)[:-4] + declared.to_bytes(4, "little")
        assert refused(reader(), liar).reason == "malformed_request"

    @pytest.mark.parametrize("data", [b"\x1f\x8b", b"\x1f\x8b" + b"x" * 100])
    def test_what_is_no_gzip_is_refused(self, data: bytes) -> None:
        assert refused(reader(bytes_max=1 << 32), data).reason in ("malformed_request", "message_too_large")

    def test_many_tiny_fields_are_counted_once_expanded(self) -> None:
        assert refused(reader(), gzip.compress(EMPTY_LABELS * MIB)).reason == "message_too_large"


class TestRoom:
    def test_is_given_back_when_the_call_ends(self) -> None:
        held = RequestBytes(MIB)
        data = bytes(_large(100_000).SerializeToString())
        for _ in range(20):
            with reader(held=held).take(data):
                pass
        for _ in range(20):
            refused(reader(held=held, bytes_max=10), gzip.compress(data))

    def test_is_refused_to_a_large_request_while_others_hold_it(self) -> None:
        held = RequestBytes(MIB)
        data = _large(100_000).SerializeToString()
        with reader(held=held).take(data), reader(held=held).take(data):
            error = refused(reader(held=held), data)
            assert (type(error), error.reason) == (Overloaded, "request_bytes")
            with reader(held=held).take(_large(10).SerializeToString()):
                pass


def _large(size: int) -> Message:
    return ingest_pb2.WriteRequest(values=b"v" * size)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
