"""The fields that Python walks are those that the kernels walk, and both stop at the same byte."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.protobuf_fields import fields, signed, varints
from tsdb.codec.protobuf_kernels import next_field
from tsdb.model.errors import InvalidRequest

varint_bytes = st.integers(0, 2**64 - 1).map(lambda value: encoded(value))
tags = st.builds(lambda number, kind: encoded(number << 3 | kind), st.sampled_from([0, 1, 3, 2**29 - 1, 2**29]),
                 st.integers(0, 7))  # fmt: skip
messages = st.lists(st.one_of(tags, varint_bytes, st.binary(max_size=9)), max_size=8).map(b"".join)
TEN = b"\x08" + b"\xff" * 9


def encoded(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes((*found, value))


def walked(data: bytes) -> tuple[list[tuple[int, int, int, int]], int | None]:
    """(fields, the byte of the field that breaks the format)."""
    found: list[tuple[int, int, int, int]] = []
    try:
        found.extend(fields(data, 0, len(data)))
    except InvalidRequest as error:
        return found, int(re.findall(r"at byte (\d+)", str(error))[0])
    return found, None


@given(messages)
@example(TEN + b"\x01")
@example(TEN + b"\x02")
@example(TEN + b"\x80\x00")
@example(b"\x08\x80\x00")
def test_fields_are_those_of_the_kernels(data: bytes) -> None:
    array, expected, pos = np.frombuffer(data, np.uint8), [], 0
    while pos < len(data):
        after, *field = next_field(array, pos, len(data))
        if after < 0:
            break
        expected.append(tuple(map(int, field)))
        pos = after
    assert walked(data) == (expected, pos if pos < len(data) else None)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_packed_numbers_come_back(numbers: list[int]) -> None:
    data = b"".join(encoded(number % 2**64) for number in numbers)
    assert [signed(one) for one in varints(data, 0, len(data))] == numbers


@pytest.mark.parametrize("data", [b"\x80", b"\xff" * 10 + b"\x01", b"\x01\x80"])
def test_packed_numbers_that_do_not_end_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="breaks the protobuf format") as caught:
        list(varints(data, 0, len(data)))
    assert caught.value.reason == "malformed_request"
