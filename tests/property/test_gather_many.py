"""A gather of several heads equals the gathers of each head: columns, overlays, late samples below coverage,
nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.heads import Record, Sample, apply, new_head, refs_of
from support.examples import examples
from tsdb.head import gather_many
from tsdb.head.gather_many import HeadsSnapshotCache, ManyRefs, columns_many, snapshot_many
from tsdb.head.head import SAMPLES_MAX, Head
from tsdb.head.slices.rows import SEALED_END, SEALED_START
from tsdb.model.errors import Overloaded
from tsdb.store.selection import Touched

SERIES = 6
START_MS = 1000
COLUMNS = (
    "series_index",
    "column_lengths",
    "axis_index",
    "axis_base_ms",
    "axis_lengths",
    "axis_counts",
    "axes",
    "data",
)
RAW = ("counts", "ts_ms", "values")

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


def arrays_of(result: object, names: Sequence[str]) -> list[bytes]:
    return [getattr(result, name).tobytes() for name in names]


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(histories, st.sets(st.integers(0, SERIES - 1))), max_size=4),
    st.tuples(*[st.integers(0, 700)] * 2),
)
def test_many_heads_at_once_give_the_result_of_each_head(
    parts: list[tuple[list[list[tuple[int, int, float]]], set[int]]], bounds: tuple[int, int]
) -> None:
    start_ms, end_ms = (600 + bound for bound in sorted(bounds))
    heads = [head_of(history) for history, _ in parts]
    refs = [refs_of(head, sorted(numbers)) for head, (_, numbers) in zip(heads, parts, strict=True)]
    many = ManyRefs.of(refs)
    assert [part.tolist() for part in many.parts()] == [part.tolist() for part in refs]
    snapshot = snapshot_many(heads, many, start_ms, end_ms)
    assert snapshot.states == [head.state() for head in heads]
    sealed = [Touched.by(held, start_ms, end_ms).rows for held in snapshot.held]
    found = columns_many(sealed, many, samples_max=SAMPLES_MAX)
    overlays = snapshot.overlay.split(many.ends)
    for head, some, columns, overlay, held in zip(heads, refs, found, overlays, snapshot.held, strict=True):
        alone = head.gather_columns(some, start_ms, end_ms)
        assert arrays_of(columns, COLUMNS) == arrays_of(alone.columns, COLUMNS)
        assert columns.samples == alone.columns.samples
        # Samples in slices below coverage are merged by each head alone.
        assert len(held.below) or arrays_of(overlay, RAW) == arrays_of(alone.overlay, RAW)


@pytest.mark.slow
@pytest.mark.parametrize("samples_max", [gather_many.SAMPLES_MAX, 9])
def test_a_continued_capture_equals_a_capture_from_nothing(monkeypatch: pytest.MonkeyPatch, samples_max: int) -> None:
    monkeypatch.setattr(gather_many, "SAMPLES_MAX", samples_max)
    went_on: Counter[bool] = Counter()

    @settings(max_examples=examples(150))
    @given(
        st.lists(
            st.tuples(histories, st.booleans(), st.integers(-300, 5), st.integers(1, 400)), min_size=2, max_size=6
        ),
        st.sets(st.integers(0, SERIES - 1)),
    )
    def check(rounds: list[tuple[list[list[tuple[int, int, float]]], bool, int, int]], numbers: set[int]) -> None:
        heads = [new_head(number, series=SERIES, hold_ms=200) for number in range(2)]
        refs = ManyRefs.of([refs_of(head, sorted(numbers)) for head in heads])
        before, last, offset, now_ms = None, HeadsSnapshotCache(), 0, START_MS
        for history, rests, back, length in rounds:
            for back_each in history:
                now_ms += 10
                given_: tuple[Sample, ...] = tuple(
                    (number, now_ms + after, value) for number, after, value in back_each
                )
                apply(heads[offset % 2], [Record(offset // 2, now_ms, given_)])
                heads[offset % 2].maintain()
                offset += 1
            for head in heads if rests else ():
                head.maintain()  # Maintenance moves late samples out of the late list.
            bounds = now_ms + back, now_ms + back + length
            snapshot, anew = snapshot_many(heads, refs, *bounds, before, last), snapshot_many(heads, refs, *bounds)
            assert snapshot.states == anew.states == [head.state() for head in heads]
            assert arrays_of(snapshot.overlay, RAW) == arrays_of(anew.overlay, RAW)
            went_on[snapshot.unsealed is before] += 1
            before = snapshot.unsealed

    check()
    assert went_on[False]
    assert went_on[True] or samples_max == 9


def test_a_late_sample_that_went_into_its_slice_is_no_longer_collected() -> None:
    head = new_head(series=1, hold_ms=1 << 40)
    for offset, now_ms in enumerate([1000, 2000]):
        apply(head, [Record(offset, now_ms, ((0, now_ms, 1.0),))])
        head.maintain()
    apply(head, [Record(2, 2001, ((0, 1001, 1.0),))])
    refs = ManyRefs.of([refs_of(head, [0])])
    before = snapshot_many([head], refs, 0, 3000)
    assert before.overlay.ts_ms.tolist() == [1001, 2000]
    head.maintain()
    assert head.sizes().late == 0
    after = snapshot_many([head], refs, 0, 3000, before.unsealed)
    assert after.overlay.ts_ms.tolist() == [2000]
    apply(head, [Record(3, 2002, ((0, 1002, 1.0), (0, 2002, 1.0)))])
    assert snapshot_many([head], refs, 0, 3000, after.unsealed).overlay.ts_ms.tolist() == [1002, 2000, 2002]


def test_the_limit_is_of_all_heads_together() -> None:
    heads = [head_of([[(number, 0, 1.0) for number in range(SERIES)]] * 60) for _ in range(3)]
    refs = ManyRefs.of([refs_of(head, range(SERIES)) for head in heads])
    sealed = [held.sealed for held in snapshot_many(heads, refs, 0, 1 << 40).held]
    total = sum(columns.samples for columns in columns_many(sealed, refs, samples_max=SAMPLES_MAX))
    assert total > 0
    assert len(columns_many(sealed, refs, samples_max=total)) == 3
    with pytest.raises(Overloaded) as over:
        columns_many(sealed, refs, samples_max=total - 1)
    assert over.value.reason == "samples_limit"


@given(histories, st.tuples(*[st.integers(-50, 800)] * 4))
def test_ranges_reported_to_touch_the_same_slices_do(
    history: list[list[tuple[int, int, float]]], bounds: tuple[int, int, int, int]
) -> None:
    held = head_of(history).contents.held
    (start_ms, end_ms), (other_start_ms, other_end_ms) = sorted(bounds[:2]), sorted(bounds[2:])
    touched = Touched.by(held, start_ms, end_ms)
    assert touched.touches_the_same(start_ms, end_ms) or start_ms == end_ms
    want = (held.sealed[:, SEALED_START] < end_ms) & (held.sealed[:, SEALED_END] > start_ms)
    assert touched.rows.tolist() == held.sealed[want].tolist() or start_ms == end_ms
    other = Touched.by(held, other_start_ms, other_end_ms)
    if touched.touches_the_same(other_start_ms, other_end_ms):
        assert other.rows.tolist() == touched.rows.tolist()
    elif len(touched.rows):
        assert other.rows.tolist() != touched.rows.tolist()
