"""Texts: the arena of all bytes that Python makes for the kernels, and the texts of numbers in it."""

from __future__ import annotations

import functools
import struct

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.mapping.layout import PIECES
from ingest.otlp.wire.fields import ODD_KIND, ODD_VALUE_AT, ODD_VALUE_END
from ingest.otlp.wire.tables import Tables
from ingest.otlp.wire.values import Buffer, odd_value, plain_text, text_of

_BITS = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")


class Arena:
    """Bytes that only grow; a span of them is (start, end)."""

    def __init__(self) -> None:
        self._bytes = bytearray(PIECES)

    def add(self, text: bytes) -> tuple[int, int]:
        """Append a text; its span."""
        start = len(self._bytes)
        self._bytes += text
        return start, len(self._bytes)

    def array(self) -> NDArray[np.uint8]:
        """All bytes. Nothing may be added afterwards."""
        return np.frombuffer(self._bytes, np.uint8)


def boundary_texts(boundaries: NDArray[np.float64], arena: Arena) -> NDArray[np.int64]:
    """int64 (n, 2): the span of the text of `le` or `quantile` of each boundary."""
    distinct, index = np.unique(boundaries.view(np.int64), return_inverse=True)
    spans = [arena.add(_boundary_text(bits)) for bits in distinct.tolist()]
    return np.array(spans, np.int64).reshape(-1, 2)[index]


def odd_texts(tables: Tables, data: Buffer, arena: Arena) -> NDArray[np.int64]:
    """int64 (n, 2): the span of the text of each odd value. Equal values of one request share their text."""
    known: dict[tuple[int, bytes], tuple[int, int]] = {}
    spans = []
    for kind, at, end in tables.odd[:, [ODD_KIND, ODD_VALUE_AT, ODD_VALUE_END]].tolist():
        key = kind, bytes(data[at:end])
        span = known.get(key)
        if span is None:
            span = known[key] = arena.add(text_of(odd_value(data, kind, at, end)))
        spans.append(span)
    return np.array(spans, np.int64).reshape(-1, 2)


# Boundaries repeat from request to request; their texts have at most 350 bytes.
@functools.lru_cache(maxsize=4096)
def _boundary_text(bits: int) -> bytes:
    return plain_text(_DOUBLE.unpack(_BITS.pack(bits))[0]).encode()
