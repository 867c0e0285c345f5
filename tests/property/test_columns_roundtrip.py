"""Any floats and any times come back bit for bit, as the kernels and as the twin read them; any bytes do no harm."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.data.column_cases import bits
from support.examples import examples
from support.oracles import columns_twin as twin
from tsdb.codec.columns.columns import (
    decode_times,
    decode_values,
    encode_times,
    encode_values,
    encode_values_dense,
)
from tsdb.codec.columns.columns_kernels import times_bound, values_bound
from tsdb.model.errors import CorruptData

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ANY_BITS = st.lists(INT64, max_size=80)
ANY_FLOATS = st.lists(st.floats(), max_size=80)
FEW = st.lists(st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e300, float("nan"), float("inf"), 2.0**60]), max_size=200)


def same_bits(values: NDArray[np.float64]) -> None:
    for encode in (encode_values, encode_values_dense):
        data = encode(values)
        assert len(data) <= values_bound(len(values))
        assert bits(decode_values(data, len(values))) == bits(values)
        assert twin.decode_values(data, len(values)) == bits(values)


@given(ANY_BITS)
def test_any_bits_come_back(given_bits: list[int]) -> None:
    same_bits(np.array(given_bits, np.int64).view(np.float64))


@given(st.one_of(ANY_FLOATS, FEW))
def test_any_floats_come_back(floats: list[float]) -> None:
    same_bits(np.array(floats, np.float64))


@given(
    st.lists(st.integers(-10_000, 10_000), min_size=2, max_size=200),
    st.sampled_from([1.0, 4096.0, 0.001, 1 / 3, 1.1e-5, 2.0**-20, 1e9]),
    st.sampled_from([0.0, 1000.0, 1e15, -7.25]),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 199), st.floats()), max_size=4),
)
def test_structured_columns_with_strangers_in_them_come_back(
    integers: list[int], base: float, offset: float, running: bool, strangers: list[tuple[int, float]]
) -> None:
    column = np.cumsum(integers) if running else np.array(integers)
    values = column * base + offset
    for at, stranger in strangers:
        values[at % len(values)] = stranger
    same_bits(values)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=120), st.sampled_from([1, 10, 1000, 10**6, 10**9]))
def test_decimals_come_back(integers: list[int], divisor: int) -> None:
    same_bits(np.array(integers) / divisor)


@given(st.lists(INT64, max_size=80).map(sorted))
def test_any_ascending_times_come_back(times: list[int]) -> None:
    data = encode_times(np.array(times, np.int64))
    assert len(data) <= times_bound(len(times))
    assert decode_times(data, len(times)).tolist() == times
    assert twin.decode_times(data, len(times)) == times


@given(INT64, st.lists(st.integers(0, 100), max_size=200), st.sampled_from([1, 1000, 60_000]))
def test_axes_with_gaps_come_back(first: int, gaps: list[int], unit: int) -> None:
    times = np.cumsum(np.array([first % 10**15, *(gap * unit for gap in gaps)], np.int64))
    assert decode_times(encode_times(times), len(times)).tolist() == times.tolist()


@settings(max_examples=examples(500))
@given(st.binary(max_size=120), st.integers(0, 70))
def test_any_bytes_decode_as_the_twin_says_or_are_corrupt(data: bytes, n: int) -> None:
    try:
        by_twin: list[int] | None = twin.decode_values(data, n)
    except twin.Corrupt:
        by_twin = None
    try:
        decoded: list[int] | None = bits(decode_values(data, n))
    except CorruptData:
        decoded = None
    assert decoded == by_twin


@given(st.binary(max_size=120), st.integers(0, 70))
def test_any_bytes_are_times_as_the_twin_says_or_corrupt(data: bytes, n: int) -> None:
    try:
        by_twin: list[int] | None = twin.decode_times(data, n)
    except twin.Corrupt:
        by_twin = None
    try:
        decoded: list[int] | None = decode_times(data, n).tolist()
    except CorruptData:
        decoded = None
    assert decoded == by_twin
