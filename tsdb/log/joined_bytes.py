"""Joins many byte strings into one and records their starts, as batches need keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class JoinedBytes:
    """Part i is data[starts[i]:starts[i + 1]]; starts int64 (n + 1,). nulls: bool (n,), None when no part is None."""

    data: bytes
    starts: NDArray[np.int64]
    nulls: NDArray[np.bool_] | None


def join_bytes(parts: Sequence[bytes | None]) -> JoinedBytes:
    """Join parts. A None counts as empty and is marked in nulls."""
    nulls = np.array([part is None for part in parts], np.bool_) if None in parts else None
    present = [part or b"" for part in parts] if nulls is not None else parts
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, present), np.int64, len(parts)), out=starts[1:])  # type: ignore[arg-type]  # no None
    return JoinedBytes(b"".join(present), starts, nulls)  # type: ignore[arg-type]  # no None left


def empty(count: int) -> JoinedBytes:
    """Joined bytes of `count` empty parts."""
    return JoinedBytes(b"", np.zeros(count + 1, np.int64), None)
