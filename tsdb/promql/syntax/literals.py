"""Literals: numbers, durations and quoted strings, to values and back to text."""

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
PLAIN_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")  # A label name that needs no quotes.

_PART = re.compile(r"(\d+)(ms|[ywdhms])")
_DURATION = re.compile("".join(rf"(?:\d+{unit})?" for unit in _UNITS_MS))
# A duration is held in nanoseconds as a signed 64-bit integer by Prometheus: 292 years.
DURATION_MS_MAX = (2**63 - 1) // 1_000_000
DURATION_DIGITS_MAX = 1_000  # Of one part, zeros before it included. Python reads a long number slowly, or not at all.

_ESCAPE = re.compile(r"\\([0-7]{3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\"}

_SHOWN_ESCAPES = {char: f"\\{code}" for code, char in _ESCAPES.items()} | {'"': '\\"'}


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


def string_of(text: str) -> str:
    """Value of a quoted string with the escapes of Go; a string in backticks has none.

    Bytes above 127 by \\x or octal are taken as parts of UTF-8, and bytes that are not UTF-8 become surrogates, as
    Python's `surrogateescape` has them. Raises ValueError.
    """
    body = text[1:-1]
    if text[0] == "`" or "\\" not in body:
        return body
    pieces: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[at : match.start()].encode(errors="surrogateescape"))
        pieces.append(_unescaped(match.group(1), text[0]))
        at = match.end()
    pieces.append(body[at:].encode(errors="surrogateescape"))
    return b"".join(pieces).decode(errors="surrogateescape")


def _unescaped(code: str, quote: str) -> bytes:
    if len(code) == 3 and code[0] in "01234567":
        value = int(code, 8)
        if value > 255:
            raise ValueError(f"octal escape value {value} > 255")
        return bytes([value])
    if code[0] == "x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0] in "uU" and len(code) > 1:
        value = int(code[1:], 16)
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            raise ValueError("escape sequence is an invalid Unicode code point")
        return chr(value).encode()
    if code == quote:
        return code.encode()
    if code in _ESCAPES:
        return _ESCAPES[code].encode()
    raise ValueError(f"unknown escape sequence \\{code}")


def quoted(value: str) -> str:
    """A string in double quotes that `string_of` reads back."""
    out = []
    for char in value:
        if char in _SHOWN_ESCAPES:
            out.append(_SHOWN_ESCAPES[char])
        elif 0xDC80 <= ord(char) <= 0xDCFF:
            out.append(f"\\x{ord(char) - 0xDC00:02x}")
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        else:
            out.append(f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else f"\\u{ord(char):04x}")
    return f'"{"".join(out)}"'


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
