"""Scales: the smallest integers that give back the very bits, and never an approximation."""

from __future__ import annotations

import numpy as np
import pytest

from support.data.column_cases import STALE
from support.kernels import integers_of, printed, proves, to_float
from tsdb.codec.columns.scale_kernels import FLOAT_BITS, RATIO, RATIO_PRINTED, SCALES

N = 64
COUNT = np.arange(1, N + 1)


def scale_of(values: np.ndarray) -> tuple[int, int]:
    scale, found = integers_of(values, 0, len(values), np.empty(len(values), np.int64), np.empty(len(values), np.int64))
    return int(scale), int(found)


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        (COUNT * 1.0, 0),
        (COUNT / 10, 1),
        (COUNT * 7 / 100, 2),
        (COUNT / 1e9, 9),
        (COUNT * 12_345 * 0.001, 25),
        (COUNT * 12_345_677 / 1000 / 1000, 47),
        (COUNT / 60, RATIO),
        (COUNT * 1001 / 3600, RATIO),
        (np.array([float(f"{count * 101 / 60:.15g}") for count in COUNT]), RATIO_PRINTED),
        (np.sqrt(COUNT + 0.5), FLOAT_BITS),
    ],
)
def test_a_column_gets_the_scale_it_was_made_with(values: np.ndarray, scale: int) -> None:
    assert scale_of(values) == (scale, 0)


@pytest.mark.parametrize("stranger", [-0.0, np.nan, np.inf, STALE, np.pi, 2.0**70])
@pytest.mark.parametrize("at", [0, 1, N // 2, N - 1])
def test_one_value_that_fits_no_scale_is_an_exception(stranger: float, at: int) -> None:
    values = COUNT / 10
    values[at] = stranger
    assert scale_of(values) == (1, 1)


@pytest.mark.parametrize("number", [-0.0, np.nan, np.inf, -np.inf, STALE, 2.0**53, -(2.0**53), 2.0**63, 1e300])
def test_a_number_without_an_exact_integer_is_proved_by_no_scale(number: float) -> None:
    assert not any(proves(scale, number) for scale in range(SCALES) if scale != FLOAT_BITS)


def test_more_digits_later_in_the_column_raise_the_scale() -> None:
    values = COUNT * 1.0
    values[-8:] += 0.125
    assert scale_of(values) == (3, 0)


def test_more_digits_of_one_value_do_not_widen_all() -> None:
    values = COUNT * 1.0
    values[-1] = 0.12345
    assert scale_of(values) == (0, 1)


@pytest.mark.parametrize(
    "number", [0.0, 1e-7, 9.999999e-8, 1e15, 999999999999999.9, 1 / 3, 2 / 3 * 1e10, -1 / 7, 1e-300]
)
def test_printed_has_fifteen_digits(number: float) -> None:
    plain = 1e-7 <= abs(number) < 1e15
    assert printed(number) == (float(f"{number:.15g}") if plain else number)


@pytest.mark.parametrize("integer", [0, 1, -1, (1 << 63) - 1, -(1 << 63), 1 << 53])
def test_every_integer_has_a_float_under_every_scale(integer: int) -> None:
    for scale in range(SCALES):
        if scale != FLOAT_BITS:
            assert abs(to_float(scale, integer)) <= 2.0**63
