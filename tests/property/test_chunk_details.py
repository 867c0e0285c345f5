"""Any histograms and start timestamps come back from a chunk and from their sections, in any number of parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.chunk_cases import fragment, samples_of
from support.data.detail_cases import joined_of
from support.examples import examples
from tsdb.codec.chunk.chunk import PART_BYTES_MAX, Fragment, decode_chunk, encode_chunk
from tsdb.codec.columns.details import EncodedDetails, Tag, decode_details
from tsdb.model.details import SampleDetails, same_details
from tsdb.model.errors import CorruptData
from tsdb.model.histograms import CUSTOM_BOUNDS, HistogramColumns, HistogramShape

WINDOW_MS = 1_000

bits = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -(2**63), 0x7FF0000000000002]))
floats = st.one_of(st.integers(0, 50).map(float), bits.map(lambda b: float(np.int64(b).view(np.float64))))
spans = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=4).map(tuple)
shapes = st.one_of(
    st.builds(
        HistogramShape,
        st.integers(-4, 8),
        st.sampled_from([0.0, 2.0**-128, 1.5]),
        st.tuples(st.integers(-(2**31) + 1, 2**30), spans).map(lambda at: ((at[0], 1), *at[1])),
        st.one_of(st.just(()), spans),
    ),
    st.integers(0, 3).map(
        lambda n: HistogramShape(CUSTOM_BOUNDS, positive=((0, n + 1),), bounds=tuple(map(float, range(n))))
    ),
)


@st.composite
def columns_of(draw: st.DrawFn, count: int) -> HistogramColumns:
    known = draw(st.lists(shapes, min_size=1, max_size=4))
    shape_of = draw(st.lists(st.integers(0, len(known) - 1), min_size=count, max_size=count))
    sizes = [len(known[shape].indexes) for shape in shape_of]
    starts = np.cumsum([0, *sizes])

    def column(size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.array(draw(st.lists(floats, min_size=size, max_size=size)), np.float64)

    is_integer = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    hints = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    buckets, zero_counts = column(int(starts[-1])), column(count)
    with np.errstate(all="ignore"):
        totals = np.bincount(np.repeat(np.arange(count), sizes), buckets, count) + zero_counts
    counts = totals if draw(st.booleans()) else column(count)
    return HistogramColumns(
        tuple(known),
        np.array(shape_of, np.int32),
        starts,
        buckets,
        counts,
        column(count),
        zero_counts,
        np.array(hints, np.uint8),
        np.array(is_integer, np.bool_),
    )


@st.composite
def detailed(draw: st.DrawFn) -> Fragment:
    ids = sorted(draw(st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=4)))
    axes = [sorted(draw(st.sets(st.integers(0, WINDOW_MS - 1), min_size=1, max_size=12))) for _ in ids]
    plain = fragment(
        [(number, axis, np.zeros(len(axis)), [1] * len(axis)) for number, axis in zip(ids, axes, strict=True)],
        start_ms=0,
    )
    kinds = np.array(draw(st.lists(st.booleans(), min_size=plain.samples, max_size=plain.samples)))
    columns = draw(columns_of(int(kinds.sum())))
    histogram_of = np.where(kinds, np.cumsum(kinds) - 1, -1)
    value = plain.value.copy()
    value[kinds] = columns.sums
    starts = draw(st.one_of(st.none(), st.lists(st.integers(-50, 50), min_size=len(value), max_size=len(value))))
    given_starts = None if starts is None else np.array(starts, np.int64)
    details = SampleDetails(given_starts, columns, histogram_of).take(np.arange(len(value)))
    return replace(plain, value=value, details=details)


@given(detailed(), st.sampled_from([PART_BYTES_MAX, 256, 600]))
@settings(max_examples=examples(200))
def test_details_come_back_from_the_parts_of_a_chunk(given_fragment: Fragment, part_bytes_max: int) -> None:
    parts = encode_chunk(given_fragment, window_ms=WINDOW_MS, part_bytes_max=part_bytes_max)
    decoded = [decode_chunk(part) for part in parts]
    assert samples_of(decoded) == samples_of([given_fragment])
    assert same_details(joined_of(decoded), given_fragment.details)
    for part, fragment_of_part in zip(parts, decoded, strict=True):
        assert len(part) <= part_bytes_max or fragment_of_part.samples == 1
        assert encode_chunk(fragment_of_part, window_ms=WINDOW_MS, part_bytes_max=PART_BYTES_MAX) == [part]


@given(detailed(), st.booleans())
@settings(max_examples=examples(100))
def test_details_come_back_from_the_sections_of_one_group(given_fragment: Fragment, dense: bool) -> None:
    details = given_fragment.details
    if details is None:
        return
    group = np.array([0, given_fragment.samples])
    columns = given_fragment.ts_ms, given_fragment.value, group
    sections = EncodedDetails(details, *columns, dense=dense).sections(0, 1)
    assert same_details(decode_details(sections, *columns, bucket_counts_max=1 << 20), details)


@given(st.binary(max_size=80), st.integers(1, 20))
@settings(max_examples=examples(300))
def test_any_bytes_are_details_or_corrupt(data: bytes, samples: int) -> None:
    columns = np.arange(samples), np.zeros(samples), np.array([0, samples])
    for tag in Tag:
        try:
            decoded = decode_details([(tag, data)], *columns, bucket_counts_max=1 << 16)
        except CorruptData:
            continue
        assert decoded.take(np.arange(samples)) is not None
