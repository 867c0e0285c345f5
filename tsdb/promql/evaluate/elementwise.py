"""Functions of one value at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Whole = NDArray[np.int64]

_DAY_S = 86_400
_CYCLE_DAYS = 146_097  # Days of 400 years, after which the calendar repeats.
_TO_MARCH_OF_YEAR_0 = 719_468  # Days from 0000-03-01 to 1970-01-01. A year that begins in March ends with the leap day.
# The value to which Go converts NaN and numbers that int64 cannot represent.
_BEYOND_DAYS, _BEYOND_S = divmod(2**63, _DAY_S)


def sign(values: Values) -> Values:
    """-1, 0 or 1; zeros and NaN stay as they are."""
    return np.where(values < 0, -1.0, np.where(values > 0, 1.0, values))


def _power(base: Values, exponent: Values) -> Values:
    """The power, as C's pow computes it. numpy takes a square root instead, which differs for -Inf and -0."""
    found = np.power(base, exponent)
    odd = (np.isneginf(base) | ((base == 0) & np.signbit(base))) & (exponent != np.floor(exponent))
    return np.where(odd, np.power(np.abs(base), exponent), found) if odd.any() else found


ARITHMETIC: dict[str, Callable[[Values, Values], Values]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod, "^": _power, "atan2": np.arctan2,
}  # fmt: skip
COMPARE: dict[str, Callable[[Values, Values], NDArray[np.bool_]]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal,
}  # fmt: skip


def least(one: Values, other: Values) -> Values:
    """The smaller value of two. NaN if one is NaN, but -Inf if one is -Inf, as in Go's math.Min."""
    return np.where(np.isneginf(one) | np.isneginf(other), -np.inf, np.minimum(one, other))


def greatest(one: Values, other: Values) -> Values:
    """The larger value of two. NaN if one is NaN, but +Inf if one is +Inf, as in Go's math.Max."""
    return np.where(np.isposinf(one) | np.isposinf(other), np.inf, np.maximum(one, other))


def rounded(values: Values, nearest: Values) -> Values:
    """Round to the nearest multiple, halves up."""
    inverse = 1.0 / nearest
    return np.floor(values * inverse + 0.5) / inverse


def date_part(name: str, seconds: Values) -> Values:
    """A part of the UTC date of seconds since 1970. The Gregorian calendar is used for all times."""
    in_range = (seconds > -(2.0**63)) & (seconds < 2.0**63)
    whole: Whole = np.where(in_range, seconds, 0.0).astype(np.int64)
    days = np.where(in_range, whole // _DAY_S, _BEYOND_DAYS)
    if name in _CLOCK:
        return _CLOCK[name](np.where(in_range, whole % _DAY_S, _BEYOND_S)).astype(np.float64)
    return _calendar(name, days).astype(np.float64)


# Functions of the seconds of a day.
_CLOCK: dict[str, Callable[[Whole], Whole]] = {
    "minute": lambda seconds: seconds // 60 % 60,
    "hour": lambda seconds: seconds // 3600,
}


def _calendar(name: str, days: Whole) -> Whole:
    """Parts of days since 1970 (Hinnant, "chrono-compatible low-level date algorithms")."""
    if name == "day_of_week":
        return (days + 4) % 7
    shifted = days + _TO_MARCH_OF_YEAR_0
    cycle: Whole = shifted // _CYCLE_DAYS
    day_of_cycle: Whole = shifted - cycle * _CYCLE_DAYS
    year_of_cycle: Whole = (
        day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36_524 - day_of_cycle // 146_096
    ) // 365
    day_of_year: Whole = day_of_cycle - (
        365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100
    )  # Days from 1 March.
    from_march = (5 * day_of_year + 2) // 153
    month: Whole = np.where(from_march < 10, from_march + 3, from_march - 9)
    year: Whole = year_of_cycle + cycle * 400 + (month <= 2)
    if name == "year":
        return year
    if name == "month":
        return month
    if name == "day_of_month":
        day: Whole = day_of_year - (153 * from_march + 2) // 5 + 1
        return day
    leap: NDArray[np.bool_] = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    if name == "day_of_year":
        return np.where(month > 2, day_of_year + 60 + leap, day_of_year - 305)
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)[month]
    return np.where(leap & (month == 2), 29, lengths)
