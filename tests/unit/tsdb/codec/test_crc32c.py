"""CRC-32C: the published vectors, and every kernel against the bitwise twin."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from support.oracles import record_twin
from tsdb.codec import crc32c_kernels
from tsdb.codec.crc32c import crc32c

KERNELS = [crc32c_kernels.extend_portable_kernel] + (
    [crc32c_kernels.extend_hardware_kernel] if crc32c_kernels.HARDWARE else []
)
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
def test_every_kernel_agrees_with_the_twin_at_any_length_and_alignment(kernel: Callable[..., np.uint32]) -> None:
    data = np.random.default_rng(7).integers(0, 256, 100, dtype=np.uint8)
    for start in range(9):
        for end in range(start, 60):
            assert kernel(np.uint32(0), data, start, end) == record_twin.crc32c(data[start:end].tobytes())


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_checksum_extends_over_further_bytes(kernel: Callable[..., np.uint32]) -> None:
    data = np.random.default_rng(8).integers(0, 256, 90, dtype=np.uint8)
    whole = record_twin.crc32c(data.tobytes())
    for cut in range(data.size):
        assert kernel(kernel(np.uint32(0), data, 0, cut), data, cut, data.size) == whole


def test_bytes_and_arrays_sum_alike() -> None:
    data = bytes(range(200))
    assert crc32c(data) == crc32c(np.frombuffer(data, dtype=np.uint8)) == crc32c(np.array(list(data), dtype=np.uint8))


def test_a_processor_without_the_instruction_gets_the_same_sums() -> None:
    program = (
        "from tsdb.codec import crc32c_kernels; from tsdb.codec.crc32c import crc32c;"
        "print(crc32c_kernels.HARDWARE, crc32c(b'123456789' * 99))"
    )
    # The two settings by which numba compiles for the plainest processor of the kind.
    plain = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run([sys.executable, "-c", program], env=plain, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", str(crc32c(b"123456789" * 99))]
