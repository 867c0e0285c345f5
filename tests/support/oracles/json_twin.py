"""Twin of the JSON writer: texts of numbers from Python's repr, and whole results from the standard library."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

# Prometheus prints smaller and larger values of vectors and matrices with an exponent.
EXPONENT_BELOW, EXPONENT_FROM = 1e-6, 1e21


def number_text(value: float) -> str:
    """The shortest decimal text of a float that reads back to it, as Go prints it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0"
    digits, point = _digits(abs(value))
    if abs(value) < EXPONENT_BELOW or abs(value) >= EXPONENT_FROM:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{'-' if point < 1 else '+'}{abs(point - 1):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _digits(value: float) -> tuple[str, int]:
    """(digits without zeros at the ends, how many of them stand before the point)."""
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    stripped = digits.lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(digits) - len(stripped))
    return stripped.rstrip("0"), point


def time_text(time_ms: int) -> str:
    """Seconds, with three digits behind the point unless they are all 0."""
    seconds, rest = divmod(abs(time_ms), 1000)
    return ("-" if time_ms < 0 else "") + str(seconds) + (f".{rest:03d}" if rest else "")


def row_text(labels: dict[str, str], points: Sequence[tuple[int, float]]) -> str:
    """A series of a matrix."""
    shown = ",".join(f'[{time_text(ts)},"{number_text(value)}"]' for ts, value in points)
    metric = json.dumps(dict(sorted(labels.items())), ensure_ascii=False, separators=(",", ":"))
    return f'{{"metric":{metric},"values":[{shown}]}}'
