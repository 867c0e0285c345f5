"""Decodes packed little-endian arrays and series blocks of wire messages, and checks them before use."""

from __future__ import annotations

import itertools
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import CorruptData
from tsdb.v1 import common_pb2

U32 = np.dtype("<u4")
U64 = np.dtype("<u8")
I64 = np.dtype("<i8")
F64 = np.dtype("<f8")

_Scalar = TypeVar("_Scalar", bound=np.generic)


def unpack(data: bytes, dtype: np.dtype[_Scalar], field: str, count: int | None = None) -> NDArray[_Scalar]:
    """A read-only view of packed items. `count`: the required number. Raises CorruptData with the field's name."""
    if len(data) % dtype.itemsize:
        raise malformed(f"{field} has {len(data)} bytes, not a multiple of {dtype.itemsize}")
    if count is not None and len(data) != count * dtype.itemsize:
        raise malformed(f"{field} has {len(data) // dtype.itemsize} items, want {count}")
    return np.frombuffer(data, dtype)


def malformed(message: str) -> CorruptData:
    """The error of an answer that breaks the wire contract."""
    return CorruptData(f"answer is malformed: {message}", reason="answer_malformed")


def block_labels(block: common_pb2.SeriesBlock, series: int) -> list[bytes]:
    """Canonical label sets of a block of `series` series; all empty for a request without labels."""
    if not block.label_lengths:
        return [b""] * series
    return split_labels(block.labels, unpack(block.label_lengths, U32, "label_lengths", series))


def split_labels(joined: bytes, lengths: NDArray[np.uint32]) -> list[bytes]:
    """Label sets that lie one after another. Raises CorruptData."""
    bounds = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    if bounds[-1] != len(joined):
        raise malformed(f"labels have {len(joined)} bytes, lengths say {bounds[-1]}")
    return [joined[start:end] for start, end in itertools.pairwise(bounds)]
