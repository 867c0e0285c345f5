"""Guarantee attacked: no bytes make a column decoder crash, hang, or touch memory that is not its own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.data.column_cases import time_columns, value_columns
from support.oracles import columns_twin as twin
from tsdb.codec.columns.columns import decode_times, decode_values, encode_times, encode_values, encode_values_dense
from tsdb.codec.columns.columns_kernels import decode_times_kernel, decode_values_kernel
from tsdb.model.errors import CorruptData

N = 40
GUARD = 16
PATTERN = 0x5A5A5A5A5A5A5A5A


def value_encodings() -> dict[str, bytes]:
    columns = value_columns(N)
    fast = {f"{name}-fast": encode_values(values) for name, values in columns.items()}
    return fast | {f"{name}-dense": encode_values_dense(values) for name, values in columns.items()}


def time_encodings() -> dict[str, bytes]:
    return {name: encode_times(ts) for name, ts in time_columns(N).items()}


def decode_guarded(kernel: object, data: bytes, n: int, dtype: type) -> NDArray[np.int64] | None:
    """Decode between guards on both sides; None for corrupt."""
    surrounded = np.frombuffer(b"\xff" * GUARD + data + b"\xff" * GUARD, np.uint8)
    out = np.full(n + 2 * GUARD, PATTERN, np.int64)
    stop = kernel(surrounded, GUARD, GUARD + len(data), n, out.view(dtype), GUARD)  # type: ignore[operator]
    assert (out[:GUARD] == PATTERN).all()
    assert (out[GUARD + n :] == PATTERN).all()
    assert stop <= GUARD + len(data)
    return out[GUARD : GUARD + n] if stop >= 0 else None


def decode_guarded_values(data: bytes, n: int) -> NDArray[np.int64] | None:
    return decode_guarded(decode_values_kernel, data, n, np.float64)


def decode_guarded_times(data: bytes, n: int) -> NDArray[np.int64] | None:
    return decode_guarded(decode_times_kernel, data, n, np.int64)


@pytest.mark.parametrize("name", value_encodings())
def test_a_truncated_value_column_is_corrupt_or_short_of_nothing(name: str) -> None:
    data = value_encodings()[name]
    for end in range(len(data)):
        assert decode_guarded_values(data[:end], N) is None
        with pytest.raises(CorruptData):
            decode_values(data[:end], N)


@pytest.mark.parametrize("name", time_encodings())
def test_a_truncated_time_axis_is_corrupt(name: str) -> None:
    data = time_encodings()[name]
    for end in range(len(data)):
        assert decode_guarded_times(data[:end], N) is None


@pytest.mark.parametrize("name", value_encodings())
def test_every_flipped_byte_decodes_as_in_the_twin_or_not_at_all(name: str) -> None:
    data = value_encodings()[name]
    # The first bytes steer, so they get every value; the others get flips of every kind.
    for at in range(len(data)):
        for flip in range(1, 256) if at < 6 else (1, 0x80, 0xFF, 0x55):
            broken = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            decoded = decode_guarded_values(broken, N)
            if at < 6 and flip % 8 == 1:
                assert decoded_by_twin(broken) == exact(decoded, broken)


def decoded_by_twin(data: bytes) -> list[int] | None:
    try:
        return twin.decode_values(data, N)
    except twin.Corrupt:
        return None


def exact(decoded: NDArray[np.int64] | None, data: bytes) -> list[int] | None:
    """The result of the wrapper, which refuses left-over bytes too."""
    try:
        values = decode_values(data, N)
    except CorruptData:
        return None
    assert decoded is not None
    assert decoded.tolist() == values.view(np.int64).tolist()
    return [int(each) for each in decoded]


@pytest.mark.parametrize("name", time_encodings())
def test_every_flipped_byte_of_a_time_axis_decodes_or_is_corrupt(name: str) -> None:
    data = time_encodings()[name]
    for at in range(len(data)):
        for flip in range(1, 256):
            decode_guarded_times(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :], N)


@pytest.mark.parametrize("n", [1, 2, 31, 33, 1000])
def test_a_column_decoded_with_another_count_stays_in_its_room(n: int) -> None:
    for data in value_encodings().values():
        decode_guarded_values(data, n)
    for data in time_encodings().values():
        decode_guarded_times(data, n)


def test_random_bytes_behind_every_first_byte_stay_in_their_room() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    for first in range(256):
        for _ in range(40):
            data = bytes([first]) + rng.bytes(int(rng.integers(0, 60)))
            decode_guarded_values(data, N)
            decode_guarded_times(data, N)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no first byte"),
        (b"\x80", "no scale"),
        (b"\x80\x31\x02", "float bits are no scale of a constant"),
        (b"\x81\x00\x00", "seven bytes short of a float"),
        (b"\x82" + b"\x00" * (8 * N - 1), "one byte short of raw"),
        (b"\x83\x00\x40", "a dictionary of nothing"),
        (b"\x83\x81\x01" + b"\x00" * 8 * 129 + b"\x40", "too many entries"),
        (b"\x83\x01" + b"\x00" * 8 + b"\xcb\x00\x02\x3f", "not a headed frame"),
        (b"\xb4" + np.float64(np.nan).tobytes() + b"\x40\x40", "a base that is no number"),
        (b"\xb4" + np.float64(0.0).tobytes() + b"\x40\x40", "a base of nothing"),
        (b"\xb5\x00", "no such form"),
        (b"\xc0\x34\x00" + b"\x41", "no such scale"),
        (b"\xf8\x00\x00\x42", "no such way"),
        (b"\xc6\x00\x00\x42", "no such packing"),
        (b"\xc4\x00\x00\x00\x02\x00\x00\x00", "levels have no sign, so no classes"),
        (b"\xd8\x31\x00\x80\x01\x42", "a shift of 64"),
        (b"\xc8\x00" + b"\xff" * 10 + b"\x42", "a varint beyond 64 bits"),
        (b"\xc8\x80\x00\x42\x00", "exceptions, but none"),
        (b"\xc8\x80\x00\x42\x01\x28" + b"\x00" * 8, "an exception behind the last value"),
        (b"\xc8\x00\x00\x81", "a patched block that ends"),
        (b"\xc8\x00\x00\x80\x21\x01" + b"\x00" * 30, "more patches than residuals"),
        (b"\xc8\x00\x00\xc0\x01\x01" + b"\x00" * 300, "width and top of more than 64 bits"),
    ],
)
def test_bytes_that_break_a_rule_of_the_document_are_corrupt(data: bytes, why: str) -> None:
    assert decode_guarded_values(data, N) is None, why
    with pytest.raises(CorruptData, match="does not hold 40 samples"):
        decode_values(data, N)
    with pytest.raises(twin.Corrupt):
        twin.decode_values(data, N)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x00\x80", b"\x00\x02", b"\x01\x00\x00", b"\x80\x00", b"\x78\x00\x42"]
)
def test_bytes_that_are_no_time_axis_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData, match="time axis"):
        decode_times(data, N)


@pytest.mark.parametrize(("pos", "end", "n"), [(-1, 4, 2), (4, 4, 1), (5, 4, 1), (0, 4, -1)])
def test_positions_that_hold_nothing_are_corrupt(pos: int, end: int, n: int) -> None:
    data = np.zeros(4, np.uint8)
    assert decode_values_kernel(data, pos, end, n, np.empty(8), 0) < 0
    assert decode_times_kernel(data, pos, end, n, np.empty(8, np.int64), 0) < 0
