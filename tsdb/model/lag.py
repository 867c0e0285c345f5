"""Lag as messages carry it, in records or ms: one value means that it is not known."""

from __future__ import annotations

LAG_UNKNOWN = (1 << 63) - 1  # Larger than any other lag, so that a store with a known lag is chosen first.


def known_lag(lag: int) -> int | None:
    """The lag of a message; None while it is not known."""
    return None if lag == LAG_UNKNOWN else lag


def wire_lag(lag: int | None) -> int:
    """The lag in the form of a message; None: not known."""
    return LAG_UNKNOWN if lag is None else lag
