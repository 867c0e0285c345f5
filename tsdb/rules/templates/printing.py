"""Texts of values as Go's package fmt writes them: `print`, and the verbs of `printf`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tsdb.model.histograms import HistogramColumns
from tsdb.promql.evaluate.native.histograms import from_columns
from tsdb.promql.evaluate.native.shown import shown_histograms
from tsdb.promql.syntax.numbers import shown_g
from tsdb.selector.tokens import quoted

WIDTH_MAX = 10_000  # A larger width or precision is written as an error, as Go does from a million on.

_VERB = re.compile(r"%([-+# 0]*)(\d+|\*)?(?:\.(\d+|\*)?)?(.)|%$", re.DOTALL)
_HAS_PRECISION = re.compile(r"%[^.%]*\.")
_FLOAT_VERBS = "eEfFgG"


@dataclass(frozen=True, slots=True)
class TemplateHistogram:
    """A native histogram as a value; columns has one sample."""

    columns: HistogramColumns

    def __str__(self) -> str:
        return next(shown_histograms(from_columns(self.columns)))


def shown(value: object) -> str:
    """A value as `print` writes it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return shown_g(value)
        case datetime():
            return shown_time(value)
        case Mapping():
            return f"map[{' '.join(f'{name}:{shown(value[name])}' for name in sorted(value))}]"
        case list() | tuple():
            return f"[{' '.join(map(shown, value))}]"
    return str(value)


def shown_time(time: datetime) -> str:
    """A time in UTC as Go writes it: without zeros at the end of its fraction."""
    fraction = f"{time.microsecond:06d}".rstrip("0")
    return f"{time:%Y-%m-%d %H:%M:%S}{'.' if fraction else ''}{fraction} +0000 UTC"


def type_name(value: object) -> str:
    """Name of a value's type in Go."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float64"
        case str():
            return "string"
        case datetime():
            return "time.Time"
        case TemplateHistogram():
            return "*histogram.FloatHistogram"
        case Mapping():
            return "map[string]string"
        case list() | tuple():
            return "template.queryResult"
    return "*template.sample"


def printed(values: Sequence[object]) -> str:
    """The values with a space between two of which none is a text."""
    out: list[str] = []
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            out.append(" ")
        out.append(shown(value))
    return "".join(out)


def formatted(pattern: str, values: Sequence[object]) -> str:
    """The values as the verbs of the pattern say; a verb that does not fit becomes Go's text of its mistake."""
    left = list(values)

    def verb(match: re.Match[str]) -> str:
        flags, width, precision, letter = match.groups()
        if letter is None:
            return "%!(NOVERB)"
        if letter == "%":
            return "%"
        sizes: list[int | None] = []
        for size in (width, precision):
            if size == "*":
                given = left.pop(0) if left else None
                size = str(given) if type(given) is int and abs(given) <= WIDTH_MAX else str(WIDTH_MAX + 1)
            sizes.append(None if size is None else int(size))
        if any(size is not None and abs(size) > WIDTH_MAX for size in sizes):
            return "%!(BADWIDTH)"
        if sizes[0] is not None and sizes[0] < 0:
            sizes[0], flags = -sizes[0], flags + "-"
        if sizes[1] is None and _HAS_PRECISION.match(match.group()):
            sizes[1] = 0
        if not left:
            return f"%!{letter}(MISSING)"
        return _verb(letter, flags, sizes[0], sizes[1], left.pop(0))

    text = _VERB.sub(verb, pattern)
    if left:
        text += f"%!(EXTRA {', '.join(f'{type_name(value)}={shown(value)}' for value in left)})"
    return text


def _verb(letter: str, flags: str, width: int | None, precision: int | None, value: object) -> str:
    text = _body(letter, flags, precision, value)
    if text is None:
        return f"%!{letter}({type_name(value)}={shown(value)})"
    if width is None or len(text) >= width:
        return text
    if "-" in flags:
        return text.ljust(width)
    is_number = isinstance(value, int | float) and letter != "q" and text[-1:] not in ("f", "N")
    if "0" in flags and is_number:
        sign = text[:1] if text[:1] in ("+", "-") else ""
        return sign + text[len(sign) :].rjust(width - len(sign), "0")
    return text.rjust(width)


def _body(letter: str, flags: str, precision: int | None, value: object) -> str | None:
    """The text without padding; None for a verb that does not fit the value."""
    if letter == "T":
        return type_name(value)
    if letter == "v":
        if isinstance(value, float) and precision is not None:
            return _float("g", flags, precision, value)
        return ("+" if "+" in flags and isinstance(value, int) and value >= 0 else "") + shown(value)
    match value:
        case bool():
            return shown(value) if letter == "t" else None
        case int():
            return _integer(letter, flags, value)
        case float():
            return _float(letter, flags, precision, value) if letter in _FLOAT_VERBS else None
        case str():
            return _text(letter, flags, precision, value)
    return shown(value) if letter == "s" else None


def _integer(letter: str, flags: str, value: int) -> str | None:
    sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    prefix = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}.get(letter, "") if "#" in flags else ""
    match letter:
        case "d":
            return f"{sign}{abs(value)}"
        case "x" | "X" | "o" | "b":
            return f"{sign}{prefix}{format(abs(value), letter)}"
        case "c":
            return chr(value) if 0 <= value < 0x110000 else "\ufffd"
        case "q":
            return f"'{chr(value)}'" if 0 <= value < 0x110000 else "'\ufffd'"
        case "U":
            return f"U+{value:04X}"
    return None


def _float(letter: str, flags: str, precision: int | None, value: float) -> str:
    plus = "+" if "+" in flags else " " if " " in flags else ""
    if not math.isfinite(value):
        text = shown_g(value)
        return text if text != "NaN" else plus + text
    if letter in "gG" and precision is None:
        text = shown_g(value)
        text = text.upper() if letter == "G" else text
        return text if text.startswith("-") else plus + text
    return f"%{plus}.{6 if precision is None else precision}{letter}" % value


def _text(letter: str, flags: str, precision: int | None, value: str) -> str | None:
    cut = value if precision is None else value[:precision]
    match letter:
        case "s":
            return cut
        case "q":
            return f"`{cut}`" if "#" in flags and "`" not in cut else quoted(cut)
        case "x":
            return cut.encode(errors="surrogateescape").hex()
        case "X":
            return cut.encode(errors="surrogateescape").hex().upper()
    return None


def javascript(text: str) -> str:
    """A text escaped for a string of JavaScript."""
    escaped = json.dumps(text, ensure_ascii=False)[1:-1].replace("'", "\\'")
    return "".join(f"\\u{ord(char):04X}" if char in "<>&=" else char for char in escaped)
