"""Write requests: the kernel reads of any bytes what the generated class reads, or refuses them."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.grpc.write_request import WriteRequest, claimed_samples, decode_write_request
from tsdb.model.errors import InvalidRequest
from tsdb.v1 import ingest_pb2

# Fields in any order and number; 9 and 500 are unknown.
FIELDS = st.lists(
    st.one_of(
        st.builds(lambda labels: ingest_pb2.WriteRequest(labels=[labels]), st.binary(max_size=200)),
        st.builds(lambda times: ingest_pb2.WriteRequest(ts_ms=times), st.integers(0, 3).map(lambda n: b"12345678" * n)),
        st.builds(lambda some: ingest_pb2.WriteRequest(values=some), st.integers(0, 3).map(lambda n: b"87654321" * n)),
        st.builds(lambda partial: ingest_pb2.WriteRequest(partial=partial), st.booleans()),
    ).map(lambda message: message.SerializeToString())
    | st.sampled_from([b"\x48\x85\x01", b"\x4a\x03abc", b"\x49" + bytes(8), b"\xa5\x1f" + bytes(4), b"\x28\x80\x00"]),
    max_size=12,
).map(b"".join)


def read(data: bytes) -> WriteRequest | InvalidRequest:
    try:
        return decode_write_request(data)
    except InvalidRequest as error:
        return error


def check(data: bytes) -> None:
    try:
        expected = ingest_pb2.WriteRequest.FromString(data)
    except DecodeError:
        with pytest.raises(InvalidRequest, match="not a valid message"):
            decode_write_request(data)
        return
    got = read(data)
    if isinstance(got, InvalidRequest):
        # Groups (wire types 3 and 4) are refused, and arrays that are not whole or do not fit.
        whole = not (len(expected.ts_ms) % 8 or len(expected.values) % 8 or expected.sample_counts)
        assert not whole or "wire type" in got.message
        return
    assert [got.rows.labels_of(row) for row in range(len(got.rows))] == list(expected.labels)
    assert (got.rows.ts_ms.tobytes(), got.rows.values.tobytes()) == (expected.ts_ms, expected.values)
    assert got.partial == expected.partial
    assert claimed_samples(data) == len(expected.ts_ms) // 8
    counts = np.frombuffer(expected.sample_counts, "<u4") if expected.sample_counts else np.ones(len(got.rows))
    assert np.diff(got.rows.starts).tolist() == counts.tolist()


@settings(max_examples=200, deadline=None)
@given(FIELDS)
@example(b"")
def test_any_fields_are_read_as_the_generated_class_does(data: bytes) -> None:
    check(data)


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=30),
        st.tuples(FIELDS, st.integers(0, 40), st.binary(max_size=3)).map(
            lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + len(cut[2]) :]
        ),
    )
)
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\x0a" + b"\xff" * 11)
@example(b"\x00\x01")
@example(b"\x0a\x81\x80\x80\x80\x80\x00a")
@example(b"\xc0\x00\x00\xa1\x80\x80\x80\x10" + bytes(8))
@example(b"\x1a\x09")
def test_damaged_bytes_are_refused_or_read_alike(data: bytes) -> None:
    check(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x0a\x05abc", r"it ends within a field; the field begins at byte 0 of 5"),
        (b"\x0a\x01a" + b"\x80" * 11, "a number has too many bytes; the field begins at byte 3 of 14"),
        (b"\x0a\x01a\x0b", "no field has this number and wire type; the field begins at byte 3"),
        (b"\x0a\x01a\x12\x08" + bytes(8), "2 sample counts for 1 series"),
        (b"\x0a\x01a\x12\x04" + bytes(4), "series_index 0 has no samples"),
        (b"\x0a\x01a\x1a\x07" + bytes(7), "ts_ms has 7 bytes"),
    ],
)
def test_a_malformed_message_is_refused_with_its_place(data: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text) as caught:
        decode_write_request(data)
    assert caught.value.reason == "malformed_request"
