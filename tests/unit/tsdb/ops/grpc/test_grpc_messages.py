"""The memory of a message is known before the message is expanded or parsed."""

from __future__ import annotations

import gzip
import sys
import threading
import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.servers.logs import wait_until
from tsdb.codec.protobuf_kernels import measure_kernel
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.grpc.messages import Expansions, MessageLimits, MessageReader, field_kinds, measure
from tsdb.v1 import common_pb2, ingest_pb2, reader_pb2

MIB = 1 << 20
EMPTY_LABELS = b"\x0a\x00"
LONG_TAG = b"\x8a\x80\x00\x00"  # The same field, its number written longer than it needs.
EMPTY_MATCHER = b"\x0a\x00"
EMPTY_TOKEN = b"\x1a\x00"  # A token of ReadOptions.after.
WRITE_KINDS = field_kinds(ingest_pb2.WriteRequest.DESCRIPTOR)
SELECT_KINDS = field_kinds(reader_pb2.SelectRequest.DESCRIPTOR)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def reader(
    kind: Any = ingest_pb2.WriteRequest,
    *,
    bytes_max: int = 16 * MIB,
    fields_max: int = 1000,
    held: RequestBytes | None = None,
    expansions: Expansions | None = None,
) -> MessageReader:
    return MessageReader(
        kind.DESCRIPTOR,
        kind.FromString,
        held or RequestBytes(256 * MIB),
        MessageLimits(bytes_max, fields_max),
        expansions,
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
    assert measure(data, WRITE_KINDS, 100).fields == len(labels) + bool(values) + partial


@given(
    matchers=st.lists(st.text(max_size=5), max_size=10),
    tokens=st.lists(st.integers(1, 1 << 40), max_size=10),
    partitions=st.lists(st.integers(0, 127), max_size=10),
)
def test_fields_of_nested_messages_are_counted(matchers: list[str], tokens: list[int], partitions: list[int]) -> None:
    request = reader_pb2.SelectRequest()
    request.options.allow_holes = True
    request.options.partitions.extend(partitions)
    for text in matchers:
        request.matchers.add(name="n" + text, value=text)
    for number in tokens:
        request.options.after.add(partition=1, record_offset=number)
    inner = 1 + (1 + len(partitions) if partitions else 0) + 3 * len(tokens)
    measured = measure(request.SerializeToString(), SELECT_KINDS, 200)
    assert measured.fields == 1 + inner + sum(2 + bool(text) for text in matchers)
    assert measured.messages == 1 + len(matchers) + len(tokens)


@given(st.binary(max_size=200), st.sampled_from([WRITE_KINDS, SELECT_KINDS]))
def test_any_bytes_are_measured_or_refused(data: bytes, kinds: NDArray[np.int32]) -> None:
    try:
        fields = measure(data, kinds, 50).fields
    except InvalidRequest:
        return
    assert 0 <= fields <= 51 + len(data)


@given(st.binary(max_size=60))
def test_what_is_measured_without_a_problem_is_parsed_too(data: bytes) -> None:
    try:
        measure(data, SELECT_KINDS, 1000)
    except InvalidRequest:
        return
    with suppress(DecodeError):  # Text that is not UTF-8 is the parser's to refuse.
        reader_pb2.SelectRequest.FromString(data)


def test_messages_nested_without_end_are_refused() -> None:
    kinds = field_kinds(descriptor_pb2.DescriptorProto.DESCRIPTOR)  # Its field 3 is a message of the same kind.
    data = b""
    for _ in range(120):
        data = b"\x1a" + _varint(len(data)) + data
    with pytest.raises(InvalidRequest, match="byte"):
        measure(data, kinds, 1000)


@pytest.mark.parametrize(
    "bomb",
    [
        EMPTY_MATCHER * (2 * MIB - 32),
        b"\x4a" + _varint(2 * MIB) + EMPTY_TOKEN * MIB,
        b"\x4a" + _varint(MIB + 4) + b"\x2a" + _varint(MIB) + bytes(MIB),
    ],
    ids=["matchers", "tokens", "packed partitions"],
)
def test_many_tiny_fields_of_a_read_cost_no_python_code_each(bomb: bytes) -> None:
    """Counted in Python, each took 35 ms of the GIL. While 64 of them came, reads of others took 20 times as long."""
    limits = MessageLimits(4 * MIB, 100_000)
    of_reads = MessageReader(reader_pb2.SelectRequest.DESCRIPTOR, _unreachable, RequestBytes(256 * MIB), limits)
    refused(of_reads, bomb)  # The first call may set up more.
    calls = 0

    def count(*_event: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        error = refused(of_reads, bomb)
    finally:
        sys.setprofile(None)
    assert (type(error), error.reason) == (InvalidRequest, "message_too_large")
    assert calls < 500
    assert not measure_kernel.__self__.keeps_gil  # type: ignore[attr-defined]


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
    options = EMPTY_TOKEN * 500_000
    request = reader_pb2.SelectRequest()
    data = request.SerializeToString() + b"\x4a" + _varint(len(options)) + options
    error = refused(reader(reader_pb2.SelectRequest, fields_max=100_000), data)
    assert (type(error), error.reason) == (InvalidRequest, "message_too_large")
    assert "limit is 100000" in str(error)


def test_a_read_of_many_series_by_id_is_taken() -> None:
    request = reader_pb2.SelectRequest(series_ids=b"\x0a" * 1_600_000)
    request.options.after.extend(common_pb2.Token(topic_id="t" * 22, partition=n, record_offset=n) for n in range(5000))
    held = RequestBytes(64 * MIB)
    of_reads = reader(reader_pb2.SelectRequest, fields_max=100_000, held=held)
    with of_reads.take(request.SerializeToString()) as taken:
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


class TestExpansions:
    """Large compressed requests are expanded one at a time on two cores."""

    BODY = gzip.compress(bytes(MIB))

    def test_at_most_the_given_number_is_expanded_at_once(self) -> None:
        expansions = Expansions(2)
        inside, most, lock = 0, 0, threading.Lock()

        def expand() -> None:
            nonlocal inside, most
            with expansions.one(MIB):
                with lock:
                    inside += 1
                    most = max(most, inside)
                assert full.wait(60.0)
                with lock:
                    inside -= 1

        full = threading.Event()
        threads = [threading.Thread(target=expand) for _ in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: inside == 2)
        full.set()
        for thread in threads:
            thread.join(60.0)
        assert (most, inside) == (2, 0)

    def test_a_large_one_waits_for_its_turn_and_is_refused_after_a_bounded_time(self) -> None:
        expansions = Expansions(1, wait_s=0.01)
        held = RequestBytes(64 * MIB)
        waiting = reader(held=held, expansions=expansions)
        with expansions.one(MIB):
            error = refused(waiting, self.BODY)
            assert (type(error), error.reason) == (Overloaded, "expanding")
            small = ingest_pb2.WriteRequest(labels=[b"x"])
            with waiting.take(gzip.compress(small.SerializeToString())) as taken:
                assert taken.message() == small
        held.take(48 * MIB)  # The refused one gave its memory back.
        assert refused(waiting, self.BODY).reason in ("malformed_request", "request_bytes")


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


def _unreachable(data: bytes) -> Message:
    raise AssertionError(f"{len(data)} bytes are parsed")


def _large(size: int) -> Message:
    return ingest_pb2.WriteRequest(values=b"v" * size)
