"""Wire: builds protobuf messages from fields that are already bytes.

An answer is mostly large arrays. Protobuf would copy each array into a field and again when it serializes; here each is
copied once. The encoding of a field: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

_LENGTH_DELIMITED = 2


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
