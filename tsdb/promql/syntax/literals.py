"""Parses numbers and durations to values, and formats them as text."""

from __future__ import annotations

import math
import re

_UNITS_MS = {
    "y": 365 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}

_PART = re.compile(r"(\d+)(ms|[ywdhms])")
_DURATION = re.compile("".join(rf"(?:\d+{unit})?" for unit in _UNITS_MS))
# Prometheus stores a duration in nanoseconds as a signed 64-bit integer: 292 years.
DURATION_MS_MAX = (2**63 - 1) // 1_000_000
# Digits of one part, zeros before it included. Python parses a long number slowly, or not at all.
DURATION_DIGITS_MAX = 1_000


def number_of(text: str) -> float:
    """Value of a number: decimal, hexadecimal, octal with a leading 0, with underscores between digits.

    Raises ValueError.
    """
    plain = text.replace("_", "")
    if text.startswith("_") or text.endswith("_") or "__" in text:
        raise ValueError(f'cannot parse "{text}" as a number')
    if plain[:2] in ("0x", "0X"):
        return float(int(plain, 16))
    if re.fullmatch(r"0[0-7]+", plain):
        return float(int(plain, 8))
    value = float(plain)
    if math.isinf(value):
        raise ValueError("value out of range")
    return value


def duration_ms_of(text: str) -> int:
    """Milliseconds of a duration such as `1h30m`: units in falling order, each once. Raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f'not a valid duration string: "{text}"')
    parts = _PART.findall(text)
    if any(len(number) > DURATION_DIGITS_MAX for number, _ in parts):
        raise ValueError("duration out of range")
    total = sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
    if total > DURATION_MS_MAX:
        raise ValueError("duration out of range")
    return total


def shown_duration(ms: int) -> str:
    """A duration as Prometheus prints it: `1h30m`, `1d`, `0s`; with a sign where it is negative."""
    if ms == 0:
        return "0s"
    rest, out = abs(ms), []
    for unit, unit_ms in _UNITS_MS.items():
        # Years and weeks are printed alone: 8 days are 8d, not 1w1d.
        if unit in ("y", "w") and rest % unit_ms:
            continue
        count, rest = divmod(rest, unit_ms)
        if count:
            out.append(f"{count}{unit}")
    return ("-" if ms < 0 else "") + "".join(out)
