"""CRC-32C: the published vectors, and every kernel against the bitwise twin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from support.kernels import extend_crc32c, extend_crc32c_portable
from support.oracles import record_twin
from tsdb.codec.crc32c import crc32c

KERNELS = [extend_crc32c_portable, extend_crc32c]
RFC_3720_READ = bytes.fromhex(
    "01c00000000000000000000000000000140000000000040000000014000000182800000000000000"  # An iSCSI command.
    "0200000000000000"
)


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (RFC_3720_READ, 0xD9963A56),
    ],
)
def test_published_vectors(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert record_twin.crc32c(data) == crc


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_agrees_with_the_twin_at_any_length_and_alignment(kernel: Callable[..., int]) -> None:
    data = np.random.default_rng(7).integers(0, 256, 100, dtype=np.uint8)
    for start in range(9):
        for end in range(start, 60):
            assert kernel(0, data, start, end) == record_twin.crc32c(data[start:end].tobytes())


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_checksum_extends_over_further_bytes(kernel: Callable[..., int]) -> None:
    data = np.random.default_rng(8).integers(0, 256, 90, dtype=np.uint8)
    whole = record_twin.crc32c(data.tobytes())
    for cut in range(data.size):
        assert kernel(kernel(0, data, 0, cut), data, cut, data.size) == whole


def test_bytes_and_arrays_sum_alike() -> None:
    data = bytes(range(200))
    assert crc32c(data) == crc32c(np.frombuffer(data, dtype=np.uint8)) == crc32c(np.array(list(data), dtype=np.uint8))
