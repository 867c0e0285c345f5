"""Fields: arrays in protobuf messages, written and read without a copy that is not needed.

An answer is mostly large arrays. Protobuf would copy each array into a field and again when it serializes; here each is
copied once. The encoding of a field: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import malformed

U8, U32, U64 = np.dtype("<u1"), np.dtype("<u4"), np.dtype("<u8")
I64, F64 = np.dtype("<i8"), np.dtype("<f8")

_LENGTH_DELIMITED = 2
_Scalar = TypeVar("_Scalar", bound=np.generic)


def unpack(data: bytes, dtype: np.dtype[_Scalar], field: str, count: int | None = None) -> NDArray[_Scalar]:
    """A read-only view of packed items. `count`: the required number. Raises CorruptData with the field's name."""
    if len(data) % dtype.itemsize:
        raise malformed(f"{field} has {len(data)} bytes, not a multiple of {dtype.itemsize}")
    if count is not None and len(data) != count * dtype.itemsize:
        raise malformed(f"{field} has {len(data) // dtype.itemsize} items, want {count}")
    return np.frombuffer(data, dtype)


def split_labels(joined: bytes, lengths: NDArray[np.uint32]) -> list[bytes]:
    """Label sets that lie one after another. Raises CorruptData."""
    bounds = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    if bounds[-1] != len(joined):
        raise malformed(f"labels have {len(joined)} bytes, lengths say {bounds[-1]}")
    return [joined[start:end] for start, end in itertools.pairwise(bounds)]


class Fields:
    """A message under construction. Until `joined`, buffers are referenced, not copied. Field numbers are 1 to 15."""

    __slots__ = ("_buffers", "size")

    def __init__(self, encoded: bytes = b"") -> None:
        self._buffers: list[Any] = [encoded]  # Bytes, and arrays in C order, which `bytes.join` takes as buffers.
        self.size = len(encoded)  # Bytes so far.

    def add_bytes(self, number: int, value: bytes) -> None:
        """A field of type bytes, or of an encoded message."""
        head = _head(number, len(value))
        self._buffers += (head, value)
        self.size += len(head) + len(value)

    def add_array(self, number: int, value: NDArray[Any]) -> None:
        """A field of type bytes."""
        size = value.nbytes
        head = _head(number, size)
        self._buffers += (head, value)
        self.size += len(head) + size

    def add_message(self, number: int, message: Fields) -> None:
        """A field of message type. `message` must not change afterwards."""
        head = _head(number, message.size)
        self._buffers.append(head)
        self._buffers += message._buffers
        self.size += len(head) + message.size

    def add_fields(self, more: Fields) -> None:
        """Append the fields of another message."""
        self._buffers += more._buffers
        self.size += more.size

    def joined(self) -> bytes:
        return b"".join(self._buffers)


@lru_cache(maxsize=8192)
def _head(number: int, size: int) -> bytes:
    """Tag and length. Cached: the same selectors over the same slices repeat the same few sizes."""
    out = bytearray((number << 3 | _LENGTH_DELIMITED,))
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)
