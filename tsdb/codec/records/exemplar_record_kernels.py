"""These kernels check exemplar records and copy their labels. Layout: docs/formats/exemplar-record.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.memory_kernels import copy_bytes, load_u32

COUNT_AT = 8
LABELS_SIZE_AT = 12
HEADER_BYTES = 16
CRC_BYTES = 4
EXEMPLAR_BYTES = 26  # Series id u64, timestamp i64, value f64, bytes of labels u16.
_FLAGS_AT = 5


@helper
def exemplars_are_sound(data: NDArray[np.uint8], start: int, size: int) -> bool:
    """Whether the fields of an exemplar record whose checksum holds agree with each other and with its size."""
    if size < HEADER_BYTES + CRC_BYTES:
        return False
    if data[start + _FLAGS_AT] or data[start + _FLAGS_AT + 1] or data[start + _FLAGS_AT + 2]:
        return False
    count = int(np.int64(load_u32(data, start + COUNT_AT)))
    label_bytes = int(np.int64(load_u32(data, start + LABELS_SIZE_AT)))
    if count == 0 or size != HEADER_BYTES + EXEMPLAR_BYTES * count + label_bytes + CRC_BYTES:
        return False
    at = start + HEADER_BYTES + 24 * count
    total = 0
    for index in range(count):
        total += int(np.int64(data[at + 2 * index])) + 256 * int(np.int64(data[at + 2 * index + 1]))
    return total == label_bytes


@short_kernel
def take_labels_kernel(
    labels: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    which: NDArray[np.int64],
    starts: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy the labels of the exemplars `which`; those of which[i] go to out[starts[i]:starts[i + 1]]."""
    for index in range(which.size):
        copy_bytes(out, starts[index], labels, label_starts[which[index]], starts[index + 1] - starts[index])
