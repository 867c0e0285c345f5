"""Precision: the unit of a request's timestamps, in the spellings of InfluxDB 1 and 2."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.model.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Precision:
    """A timestamp t is floor(t * multiply / divide) ms since the epoch."""

    multiply: int
    divide: int


_NS, _US, _MS = Precision(1, 1_000_000), Precision(1, 1000), Precision(1, 1)
_UNITS = {
    "": _NS,
    "n": _NS,
    "ns": _NS,
    "u": _US,
    "us": _US,
    "\u00b5": _US,
    "\u00b5s": _US,
    "ms": _MS,
    "s": Precision(1000, 1),
    "m": Precision(60_000, 1),
    "h": Precision(3_600_000, 1),
}


def parse_precision(text: str) -> Precision:
    """The unit that a request names; nanoseconds when it names none. Raises InvalidRequest (bad_precision)."""
    if text not in _UNITS:
        raise InvalidRequest(
            f"precision is {text[:20]!r}; allowed are ns, n, us, u, ms, s, m, h, or none for ns", reason="bad_precision"
        )
    return _UNITS[text]
