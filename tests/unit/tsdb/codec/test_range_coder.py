"""Range coder: every alphabet, searched from either end, gives back what was encoded, and takes any bytes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.kernels import decode_symbols, encode_symbols, read_entropy, write_entropy
from tsdb.codec.columns.entropy_kernels import CLASSES, LIMIT, TWO_ENDED_FROM

ALPHABETS = [1, 2, 5, TWO_ENDED_FROM - 1, TWO_ENDED_FROM, TWO_ENDED_FROM + 1, CLASSES]
COUNT = LIMIT // 8  # Counts are halved several times.


def spreads(alphabet: int) -> dict[str, NDArray[np.int64]]:
    rng = np.random.default_rng(alphabet)
    return {
        "even": rng.integers(0, alphabet, COUNT),
        "first": np.zeros(COUNT, np.int64),
        "last": np.full(COUNT, alphabet - 1),
        "ends": rng.integers(0, 2, COUNT) * (alphabet - 1),
        "middle": np.clip(rng.normal(alphabet / 2, 2, COUNT).astype(np.int64), 0, alphabet - 1),
    }


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_symbols_come_back_wherever_in_the_alphabet_they_lie(alphabet: int) -> None:
    for symbols in spreads(alphabet).values():
        data = np.zeros(4 * COUNT, np.uint8)
        end = encode_symbols(symbols, COUNT, alphabet, data, 0, data.size)
        found = np.full(COUNT + 1, -1, np.int64)
        assert decode_symbols(data, 0, end, COUNT, alphabet, found, 1) == end
        np.testing.assert_array_equal(found[1:], symbols)


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_any_bytes_decode_to_symbols_of_the_alphabet_or_fail(alphabet: int) -> None:
    rng = np.random.default_rng(alphabet)
    for size in (0, 1, 3, 4, 50):
        for data in (rng.integers(0, 256, (20, size), np.uint8), np.full((1, size), 255, np.uint8)):
            for each in data:
                found = np.zeros(COUNT, np.int64)
                stop = decode_symbols(np.ascontiguousarray(each), 0, size, COUNT, alphabet, found, 0)
                assert stop <= size
                assert found.min() >= 0
                assert found.max() < alphabet


@pytest.mark.parametrize("length", [1, 55, 56, 57, 58, 62, 63])
def test_lower_bits_of_any_width_come_back_up_to_the_last_byte(length: int) -> None:
    rng = np.random.default_rng(length)
    for count in (1, 2, 7, 8, 9, 40):
        residuals = (rng.integers(0, 1 << length, count) | 1 << (length - 1)) << 1
        data = np.zeros(20 * count + 40, np.uint8)
        end = write_entropy(residuals, count, data, 0, data.size)
        data[end:] = 255
        found = np.zeros(count, np.int64)
        assert read_entropy(data, 0, end, count, found, 0) == end
        np.testing.assert_array_equal(found, residuals)
