"""Columns: exact for every float64 and int64, small where series are regular, and strict about their input."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.data.column_cases import SPECIAL, STALE, bits, node_columns, time_columns, value_columns
from support.oracles import columns_twin as twin
from tsdb.codec.columns.columns import (
    COLUMN_SAMPLES_MAX,
    decode_times,
    decode_values,
    encode_times,
    encode_values,
    encode_values_dense,
    scratch,
)
from tsdb.codec.columns.columns_kernels import (
    decode_times_kernel,
    decode_values_kernel,
    encode_times_kernel,
    encode_values_dense_kernel,
    encode_values_kernel,
    times_bound,
    values_bound,
)
from tsdb.model.errors import CorruptData

ENCODERS = [encode_values, encode_values_dense]
LENGTHS = [1, 2, 3, 31, 32, 33, 34, 64, 65, 240, 961]


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", value_columns())
def test_values_come_back_bit_for_bit(name: str, n: int, encode: object) -> None:
    values = np.ascontiguousarray(value_columns(max(n, 8))[name][:n])
    data = encode(values)  # type: ignore[operator]
    assert bits(decode_values(data, n)) == bits(values)
    assert len(data) <= values_bound(n)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", time_columns())
def test_times_come_back_exactly(name: str, n: int) -> None:
    ts = np.ascontiguousarray(time_columns(max(n, 12))[name][:n])
    data = encode_times(ts)
    assert decode_times(data, n).tolist() == ts.tolist()
    assert len(data) <= times_bound(n)


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize("name", value_columns())
def test_the_kernels_agree_with_the_twin(name: str, encode: object) -> None:
    values = value_columns(97)[name]
    assert twin.decode_values(encode(values), 97) == bits(values)  # type: ignore[operator]


@pytest.mark.parametrize("name", time_columns())
def test_the_time_kernels_agree_with_the_twin(name: str) -> None:
    ts = time_columns(97)[name]
    assert twin.decode_times(encode_times(ts), 97) == ts.tolist()


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize("value", [*SPECIAL, np.nan, STALE, 127.0, 128.0, -1.0, 0.25, 1e-300, 123456.789])
def test_one_value_of_any_kind_is_exact_alone_and_repeated(value: float, encode: object) -> None:
    for n in (1, 5, 500):
        values = np.full(n, value)
        data = encode(values)  # type: ignore[operator]
        assert bits(decode_values(data, n)) == bits(values)
        assert len(data) <= 9


def test_an_empty_column_is_no_bytes() -> None:
    assert encode_values(np.empty(0)) == encode_values_dense(np.empty(0)) == encode_times(np.empty(0, np.int64)) == b""
    assert len(decode_values(b"", 0)) == len(decode_times(b"", 0)) == 0


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("zeros", 1),
        ("constant_large", 8),
        ("constant_third", 9),
        ("minus_zeros", 9),
        ("one_step", 10),
        ("counter_even", 12),
        ("memory", 380),
        ("gauge_decimals", 430),
        ("nanoseconds", 530),
        ("milliseconds_multiplied", 430),
        ("microseconds_divided_twice", 740),
        ("average_over_minute", 340),
        ("average_printed", 340),
        ("float32", 800),
        ("stale_markers", 360),
    ],
)
def test_regular_columns_are_small(name: str, most: int) -> None:
    assert len(encode_values(value_columns()[name])) <= most


@pytest.mark.parametrize(
    ("name", "most"), [("few_distinct", 160), ("average_over_7", 470), ("offset_ratio", 400), ("mostly_zero", 110)]
)
def test_structure_in_noisy_floats_is_found_by_the_dense_encoder(name: str, most: int) -> None:
    assert len(encode_values_dense(value_columns()[name])) <= most


def test_a_regular_axis_is_a_few_bytes_whatever_its_length() -> None:
    for n in (2, 240, 100_000):
        assert len(encode_times(np.arange(n, dtype=np.int64) * 15_000)) <= 5


def test_a_jittered_axis_takes_its_jitter_only() -> None:
    # Changes of +-19 ms around the interval have 39 values: 6 bits each.
    assert len(encode_times(time_columns(240)["jittered"])) <= 240 * 6 // 8 + 16


@pytest.mark.parametrize("name", value_columns())
def test_dense_is_never_larger(name: str) -> None:
    values = value_columns()[name]
    assert len(encode_values_dense(values)) <= len(encode_values(values))


@pytest.mark.parametrize(("n", "fast", "dense"), [(240, 0.48, 0.41), (60, 0.52, 0.47)])
def test_a_hosts_real_metrics_stay_small(n: int, fast: float, dense: float) -> None:
    columns = node_columns(n, every=3)
    samples = len(columns) * n
    for encode, most in ((encode_values, fast), (encode_values_dense, dense)):
        size = 0
        for values in columns:
            data = encode(values)
            size += len(data)
            assert bits(decode_values(data, n)) == bits(values)
        assert size / samples < most


@pytest.mark.parametrize("kernel", [encode_values_kernel, encode_values_dense_kernel])
@pytest.mark.parametrize("name", value_columns())
def test_kernels_work_in_place_and_touch_nothing_else(name: str, kernel: object) -> None:
    values, n = value_columns(77)[name], 77
    around = np.concatenate([np.full(3, 1e9), values, np.full(2, -1e9)])
    data = np.full(values_bound(n) + 20, 0xAA, np.uint8)
    stop = kernel(around, 3, n, data, 7, scratch(n))  # type: ignore[operator]
    assert stop <= 7 + values_bound(n)
    assert (data[:7] == 0xAA).all()
    assert (data[7 + values_bound(n) :] == 0xAA).all()
    out = np.full(n + 9, 5.5)
    assert decode_values_kernel(data, 7, stop, n, out, 4) == stop
    assert bits(out[4 : 4 + n]) == bits(values)
    assert (out[:4] == 5.5).all()
    assert (out[4 + n :] == 5.5).all()
    # A column contains its end, so bytes behind it change nothing.
    assert decode_values_kernel(data, 7, len(data), n, out, 4) == stop


@pytest.mark.parametrize("name", time_columns())
def test_time_kernels_work_in_place_and_touch_nothing_else(name: str) -> None:
    ts, n = time_columns(77)[name], 77
    around = np.concatenate([[1, 2, 3], ts, [4]])
    data = np.full(times_bound(n) + 20, 0xAA, np.uint8)
    stop = encode_times_kernel(around, 3, n, data, 7, scratch(n))
    assert (data[:7] == 0xAA).all()
    assert (data[stop:] == 0xAA).all()
    out = np.full(n + 9, 55, np.int64)
    assert decode_times_kernel(data, 7, len(data), n, out, 4) == stop
    assert out.tolist() == [55] * 4 + ts.tolist() + [55] * 5


def test_the_same_column_gives_the_same_bytes_with_any_scratch_content() -> None:
    for values in value_columns().values():
        first, second = np.zeros(values_bound(240), np.uint8), np.full(values_bound(240), 9, np.uint8)
        ends = [
            encode_values_dense_kernel(values, 0, 240, out, 0, np.full(4 * 240 + 64, fill))
            for out, fill in ((first, 0), (second, -1))
        ]
        assert first[: ends[0]].tobytes() == second[: ends[1]].tobytes()


def test_too_long_a_column_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(CorruptData, match=f"column of {COLUMN_SAMPLES_MAX + 1} samples; limit is {COLUMN_SAMPLES_MAX}"):
        decode_values(b"\x00", COLUMN_SAMPLES_MAX + 1)
    with pytest.raises(CorruptData, match="column of -1 samples"):
        decode_times(b"\x00", -1)


def test_a_column_of_another_length_than_expected_is_corrupt() -> None:
    data = encode_values(value_columns()["counter"])
    with pytest.raises(CorruptData, match=f"value column of {len(data) - 1} bytes does not hold 240 samples"):
        decode_values(data[:-1], 240)
    with pytest.raises(CorruptData, match=f"value column ends at byte {len(data)} of {len(data) + 1}; got 240 samples"):
        decode_values(data + b"\x00", 240)


def test_inputs_that_are_not_contiguous_encode_alike() -> None:
    values: NDArray[np.float64] = np.repeat(value_columns()["memory"], 2)
    assert encode_values(values[::2]) == encode_values(value_columns()["memory"])


def test_columns_of_many_samples_are_exact() -> None:
    values = np.cumsum(np.random.Generator(np.random.PCG64(1)).integers(0, 90, 1_000_000)).astype(np.float64)
    assert bits(decode_values(encode_values(values), len(values))) == bits(values)
