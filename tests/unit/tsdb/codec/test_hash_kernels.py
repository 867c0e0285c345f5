"""Hashes and UTF-8 in kernels: equal to xxhash, to the partitioner and to Python's decoder."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.examples import examples
from support.kernels import is_utf8, murmur2, xxh3
from tsdb.codec.xxh3_kernels import long_secret
from tsdb.model.partitioner import murmur2 as murmur2_twin

SEEDS = (0, 1, 0x9E3779B185EBCA87, 2**64 - 1)
# All length classes of xxh3 with their borders, and more than one block of stripes.
SIZES = [*range(260), 511, 512, 513, 1023, 1024, 1025, 1088, 2047, 2048, 2049, 4096, 8192]


def ranges(sizes: list[int]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Ranges of these sizes at odd positions of random bytes."""
    data = np.random.default_rng(7).integers(0, 256, max(sizes) + 16, dtype=np.uint8)
    starts = np.array([size % 13 for size in sizes], np.int64)
    return data, starts, starts + np.array(sizes, np.int64)


@pytest.mark.parametrize("seed", SEEDS)
def test_xxh3_of_every_length_class_is_that_of_the_library(seed: int) -> None:
    data, starts, ends = ranges(SIZES)
    out = np.empty(len(SIZES), np.uint64)
    xxh3(data, starts, ends, np.uint64(seed), long_secret(seed), out)
    expected = [
        xxhash.xxh3_64_intdigest(data[a:b].tobytes(), seed) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    assert out.tolist() == expected


def test_murmur2_is_that_of_the_partitioner() -> None:
    sizes = list(range(70))
    data, starts, ends = ranges(sizes)
    out = np.empty(len(sizes), np.uint64)
    murmur2(data, starts, ends, out)
    expected = [murmur2_twin(data[a:b].tobytes()) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    assert out.tolist() == expected


TEXTS = st.text().map(lambda text: text.encode(errors="surrogatepass"))
CUTS = st.tuples(TEXTS, st.integers(0, 8)).map(lambda cut: cut[0][: max(0, len(cut[0]) - cut[1])])
EDGES = [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5"]


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(st.one_of(TEXTS, CUTS, st.binary(max_size=40), st.lists(st.sampled_from([*EDGES, b"12345678"])).map(b"".join)))
@example(b"1234567\xc3\xa4")
@example(b"12345678\xf4\x8f\xbf\xbf")
def test_utf8_is_what_python_decodes(data: bytes) -> None:
    try:
        data.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    around = np.frombuffer(b"\xff" + data + b"\x80", np.uint8)
    assert is_utf8(around, 1, len(around) - 1) == valid
