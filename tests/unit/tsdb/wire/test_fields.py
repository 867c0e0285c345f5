"""Fields: protobuf parses a message that was built field by field."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.v1 import reader_pb2
from tsdb.wire.fields import Fields

# The length is a varint: it grows by a byte at each of these.
SIZES = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152]


@pytest.mark.parametrize("size", SIZES)
def test_bytes_of_any_length_are_a_field(size: int) -> None:
    value = bytes(size)
    frame = Fields(reader_pb2.RawFrame(partition=3, first_series=300).SerializeToString())
    frame.add_bytes(5, value)
    read = reader_pb2.RawFrame.FromString(frame.joined())
    assert (read.partition, read.first_series, read.values) == (3, 300, value)
    assert frame.size == len(frame.joined())


@pytest.mark.parametrize("size", SIZES)
def test_a_message_within_a_message_has_the_length_of_all_that_it_holds(size: int) -> None:
    values = np.arange(size // 8, dtype=np.int64)
    frame = Fields()
    frame.add_array(4, values)
    frame.add_bytes(5, b"after")
    answer = Fields()
    answer.add_bytes(3, frame.joined())
    answer.add_message(3, frame)
    answer.add_bytes(5, reader_pb2.SelectTrailer(series=7).SerializeToString())
    read = reader_pb2.SelectResponse.FromString(answer.joined())
    assert [(one.ts_ms, one.values) for one in read.raw] == [(values.tobytes(), b"after")] * 2
    assert read.trailer.series == 7
    assert answer.size == len(answer.joined())


def test_part_of_an_array_goes_as_it_lies() -> None:
    frame = Fields()
    frame.add_array(3, np.arange(10, dtype=np.uint32)[3:5])
    assert reader_pb2.RawFrame.FromString(frame.joined()).counts == np.array([3, 4], "<u4").tobytes()
