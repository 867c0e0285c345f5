"""Texts of numbers, as Go prints them: the shortest digits that read back to the number."""

from __future__ import annotations

import math


def shown_g(value: float) -> str:
    """A number as Go's `%g` prints it: with an exponent from 1e+06 on and below 1e-04."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0"
    digits, exponent = _scientific(value)
    if -4 <= exponent < 6:
        return sign + _positional(digits, exponent)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def shown_f(value: float) -> str:
    """A number as Go's `f` format prints it: without an exponent."""
    if not math.isfinite(value) or value == 0:
        return shown_g(value)
    return ("-" if value < 0 else "") + _positional(*_scientific(value))


def _scientific(value: float) -> tuple[str, int]:
    """(digits without trailing zeros, exponent of the first digit); value is finite and not 0."""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    return digits.rstrip("0"), len(whole) - 1 - leading + int(exponent or 0)


def _positional(digits: str, exponent: int) -> str:
    """Digits with their point and zeros."""
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits + "0" * (exponent + 1 - len(digits))
    return f"{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
