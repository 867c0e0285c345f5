"""Any start timestamps come back bit for bit, as the kernels and as the twin read them; any bytes do no harm."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.oracles import columns_twin as twin
from tsdb.codec.columns.columns import decode_starts, encode_starts
from tsdb.codec.columns.starts_kernels import RUN_BYTES_MAX, decode_starts_kernel
from tsdb.model.errors import CorruptData

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
GUARD = 16
PATTERN = 0x5A5A5A5A5A5A5A5A


def comes_back(ts: list[int], starts: list[int]) -> bytes:
    times = np.array(ts, np.int64)
    data = encode_starts(times, np.array(starts, np.int64))
    assert len(data) <= RUN_BYTES_MAX * len(starts)
    assert decode_starts(data, times).tolist() == starts
    assert twin.decode_starts(data, ts) == starts
    return data


@given(st.lists(st.tuples(INT64, INT64), max_size=80))
def test_any_start_timestamps_come_back(samples: list[tuple[int, int]]) -> None:
    comes_back([ts for ts, _ in samples], [start for _, start in samples])


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3), st.integers(-5, 5)), max_size=20))
def test_runs_of_every_kind_come_back(runs: list[tuple[int, int, int]]) -> None:
    count = sum(samples for samples, _, _ in runs)
    ts = [1_700_000_000_000 + 15_000 * index for index in range(count)]
    starts: list[int] = []
    for samples, kind, x in runs:
        first = len(starts)
        for index in range(first, first + samples):
            starts.append((0, ts[first] + x, ts[index] + x, ts[index - 1])[kind])
    data = comes_back(ts, starts)
    assert len(data) <= 14 * len(runs)


@given(st.binary(max_size=60), st.lists(INT64, max_size=40))
def test_any_bytes_decode_as_the_twin_says_or_are_corrupt(data: bytes, ts: list[int]) -> None:
    times = np.array(ts, np.int64)
    try:
        expected = twin.decode_starts(data, ts)
    except twin.Corrupt:
        expected = None
    try:
        got = decode_starts(data, times).tolist()
    except CorruptData:
        got = None
    assert got == expected


@given(st.binary(max_size=60), st.integers(0, 40))
def test_any_bytes_stay_within_their_column(data: bytes, n: int) -> None:
    surrounded = np.frombuffer(b"\x05" * GUARD + data + b"\x05" * GUARD, np.uint8)
    out = np.full(n + 2 * GUARD, PATTERN, np.int64)
    ts = np.arange(n, dtype=np.int64)
    stop = decode_starts_kernel(surrounded, GUARD, GUARD + len(data), ts, out[GUARD : GUARD + n])
    assert stop <= GUARD + len(data)
    assert (out[:GUARD] == PATTERN).all()
    assert (out[GUARD + n :] == PATTERN).all()
