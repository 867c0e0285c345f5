"""Several heads asked at once give what each gives alone: columns, overlays, late samples below coverage, nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.heads import Record, Sample, apply, new_head, refs_of
from tsdb.head.gather import ColumnsResult
from tsdb.head.gather_many import gather_columns_many
from tsdb.head.head import SAMPLES_MAX, Head
from tsdb.model.errors import InvalidRequest, Overloaded

SERIES = 6
START_MS = 1000
ARRAYS = ("series_index", "column_lengths", "axis_index", "axis_base_ms", "axis_lengths", "axis_counts", "axes", "data")

samples = st.tuples(st.integers(0, SERIES - 1), st.integers(-400, 3), st.floats(allow_nan=False))
histories = st.lists(st.lists(samples, max_size=8), max_size=40)


def head_of(history: Sequence[Sequence[tuple[int, int, float]]]) -> Head:
    """A record every 10 ms; sample times are relative to it, so some are late, some below coverage."""
    head = new_head(series=SERIES)
    for offset, back in enumerate(history):
        now_ms = START_MS + 10 * offset
        given_: tuple[Sample, ...] = tuple((number, now_ms + after, value) for number, after, value in back)
        apply(head, [Record(offset, now_ms, given_)])
        head.maintain()
    return head


def arrays_of(result: ColumnsResult) -> list[bytes]:
    columns, overlay = result.columns, result.overlay
    arrays: list[NDArray[np.generic]] = [getattr(columns, name) for name in ARRAYS]
    return [array.tobytes() for array in (*arrays, overlay.counts, overlay.ts_ms, overlay.values)]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(histories, st.sets(st.integers(0, SERIES - 1))), max_size=4),
    st.tuples(*[st.integers(0, 700)] * 2),
)
def test_many_heads_at_once_give_what_each_gives(
    parts: list[tuple[list[list[tuple[int, int, float]]], set[int]]], bounds: tuple[int, int]
) -> None:
    start_ms, end_ms = (600 + bound for bound in sorted(bounds))
    heads = [head_of(history) for history, _ in parts]
    refs = [refs_of(head, sorted(numbers)) for head, (_, numbers) in zip(heads, parts, strict=True)]
    found = gather_columns_many(heads, refs, start_ms, end_ms, samples_max=SAMPLES_MAX)
    alone = [head.gather_columns(some, start_ms, end_ms) for head, some in zip(heads, refs, strict=True)]
    assert list(map(arrays_of, found)) == list(map(arrays_of, alone))
    assert [one.samples for one in found] == [one.samples for one in alone]


def test_limits_are_of_all_heads_together() -> None:
    heads = [head_of([[(number, 0, 1.0) for number in range(SERIES)]] * 20) for _ in range(3)]
    refs = [refs_of(head, range(SERIES)) for head in heads]
    total = sum(one.samples for one in gather_columns_many(heads, refs, 0, 1 << 40, samples_max=SAMPLES_MAX))
    assert total == 3 * 20 * SERIES
    assert len(gather_columns_many(heads, refs, 0, 1 << 40, samples_max=total)) == 3
    with pytest.raises(Overloaded) as over:
        gather_columns_many(heads, refs, 0, 1 << 40, samples_max=total - 1)
    assert over.value.reason == "samples_limit"
    with pytest.raises(InvalidRequest):
        gather_columns_many(heads, refs, 2, 1, samples_max=total)
