"""Any fragment comes back from its chunk bit for bit, in any number of parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.chunk_cases import fragment, samples_of
from support.examples import examples
from tsdb.codec.chunk.chunk import PART_BYTES_MAX, PART_BYTES_MIN, Fragment, decode_chunk, encode_chunk

WINDOW_MS = 1_000

bits = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -(2**63), 0x7FF0000000000002]))
values = st.one_of(st.integers(-50, 50).map(float), bits.map(lambda b: float(np.int64(b).view(np.float64))))
orders = st.one_of(st.integers(0, 3), st.integers(0, 2**62))
times = st.one_of(
    st.sets(st.integers(0, WINDOW_MS - 1), min_size=1, max_size=40).map(sorted),
    st.integers(1, 30).map(lambda n: list(range(0, 20 * n, 20))),
)


@st.composite
def fragments(draw: st.DrawFn) -> Fragment:
    ids = sorted(draw(st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=6)))
    start_ms = WINDOW_MS * draw(st.integers(-(2**40), 2**40))
    shared = draw(times)
    series = []
    for number in ids:
        axis = shared if draw(st.booleans()) else draw(times)
        column = [draw(values) for _ in axis]
        order = [draw(orders)] * len(axis) if draw(st.booleans()) else [draw(orders) for _ in axis]
        series.append((number, [start_ms + ts for ts in axis], column, order))
    return fragment(series, pack_id=draw(st.integers(0, 2**64 - 1)), start_ms=start_ms)


@given(fragments(), st.sampled_from([PART_BYTES_MAX, PART_BYTES_MIN, 1024]))
@settings(max_examples=examples(200))
def test_a_fragment_comes_back_from_its_parts(given_fragment: Fragment, part_bytes_max: int) -> None:
    parts = encode_chunk(given_fragment, window_ms=WINDOW_MS, part_bytes_max=part_bytes_max)
    assert max(map(len, parts)) <= part_bytes_max
    decoded = [decode_chunk(part) for part in parts]
    assert samples_of(decoded) == samples_of([given_fragment])
    assert {(part.pack_id, part.window_start_ms) for part in decoded} == {
        (given_fragment.pack_id, given_fragment.window_start_ms)
    }
