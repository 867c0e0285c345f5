"""Ranges, steps, limits and `seen`: the read side of one head."""

from __future__ import annotations

import math

import numpy as np
import pytest

from support.data.heads import Record, apply, new_head, refs_of, samples_of
from tsdb.head.head import Head
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.model.window import TIME_MAX_MS

LAST, AVG, MIN, MAX, SUM, COUNT = range(1, 7)
NAN = float("nan")


def head_with(values: list[float], *, start_ms: int = 1000, every_ms: int = 10, series: int = 1) -> Head:
    """Samples every few ms, in sealed and merged slices except the newest."""
    head = new_head(series=series + 1, hold_ms=1 << 40)
    for offset, value in enumerate(values):
        now_ms = start_ms + every_ms * offset
        apply(head, [Record(offset, now_ms, tuple((number, now_ms, value) for number in range(series)))])
        head.maintain()
    return head


@pytest.mark.parametrize(
    ("aggregation", "want"), [(LAST, 4.0), (AVG, 2.5), (MIN, 1.0), (MAX, 4.0), (SUM, 10.0), (COUNT, 4.0)]
)
def test_a_step_is_stamped_with_its_start_and_aggregates_its_samples(aggregation: int, want: float) -> None:
    head = head_with([3.0, 1.0, 2.0, 4.0])
    raw = head.gather_raw(refs_of(head, [0]), 990, 1040, step_ms=50, aggregation=aggregation)
    assert samples_of(raw, [0]) == {0: {990: want}}


@pytest.mark.parametrize(
    ("aggregation", "values", "want"),
    [
        (MIN, [NAN, 2.0, 1.0], 1.0),
        (MAX, [1.0, NAN, 2.0], 2.0),
        (MAX, [2.0, 1.0, NAN], 2.0),
        (MIN, [NAN, NAN], NAN),
        (SUM, [1.0, NAN], NAN),
        (AVG, [NAN, 1.0], NAN),
        (COUNT, [NAN, 1.0], 2.0),
        (LAST, [1.0, NAN], NAN),
        (SUM, [float("inf"), float("-inf")], NAN),
    ],
)
def test_nan_takes_part_as_in_ieee_but_not_in_minimum_and_maximum(
    aggregation: int, values: list[float], want: float
) -> None:
    head = head_with(values)
    (got,) = head.gather_raw(refs_of(head, [0]), 1000, 1100, step_ms=100, aggregation=aggregation).values
    assert got == want or (math.isnan(want) and math.isnan(got))


def test_empty_steps_are_left_out() -> None:
    head = head_with([1.0, 2.0], every_ms=100)
    raw = head.gather_raw(refs_of(head, [0]), 1000, 1200, step_ms=20, aggregation=COUNT)
    assert samples_of(raw, [0]) == {0: {1000: 1.0, 1100: 1.0}}


def test_last_n_gives_the_newest_in_the_range() -> None:
    head = head_with([float(n) for n in range(30)])
    raw = head.gather_raw(refs_of(head, [0]), 1000, 1200, last_n=3)
    assert samples_of(raw, [0]) == {0: {1170: 17.0, 1180: 18.0, 1190: 19.0}}


def test_a_range_is_half_open() -> None:
    head = head_with([float(n) for n in range(30)])
    raw = head.gather_raw(refs_of(head, [0]), 1010, 1030)
    assert raw.ts_ms.tolist() == [1010, 1020]
    assert head.gather_raw(refs_of(head, [0]), 1010, 1010).samples == 0


@pytest.mark.parametrize(("start", "end"), [(2, 1), (-TIME_MAX_MS - 1, 0), (0, TIME_MAX_MS + 1)])
def test_a_reversed_or_absurd_range_is_refused(start: int, end: int) -> None:
    head = head_with([1.0])
    for read in (head.gather_raw, head.gather_columns, head.seen):
        with pytest.raises(InvalidRequest, match="range") as caught:
            read(refs_of(head, [0]), start, end)
        assert caught.value.reason == "bad_range"


@pytest.mark.parametrize("options", [{"step_ms": -1}, {"step_ms": 5, "partial": True}, {"step_ms": 5, "last_n": 1}])
def test_steps_go_without_partial_and_last_n(options: dict[str, int]) -> None:
    head = head_with([1.0])
    with pytest.raises(InvalidRequest, match="step_ms"):
        head.gather_raw(refs_of(head, [0]), 0, 10, **options)  # type: ignore[arg-type]  # any of them


@pytest.mark.parametrize("samples_max", [10, 59])
def test_an_answer_over_the_limit_of_samples_is_refused_with_limit_and_asked(samples_max: int) -> None:
    head = head_with([float(n) for n in range(30)], series=2)
    refs = refs_of(head, [0, 1])
    for read in (head.gather_raw, head.gather_columns):
        with pytest.raises(Overloaded, match=f"limit is {samples_max}") as caught:
            read(refs, 0, 9999, samples_max=samples_max)
        assert caught.value.reason == "samples_limit"
        assert int(caught.value.metadata["asked"]) > samples_max
    assert head.gather_raw(refs, 0, 9999, samples_max=60).samples == 60
    assert head.gather_raw(refs, 0, 9999, last_n=1, samples_max=2).samples == 2


def test_samples_decoded_in_many_blocks_are_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    head = head_with([float(n) for n in range(50)], series=7)
    refs = refs_of(head, range(7))
    whole = head.gather_raw(refs, 0, 9999, partial=True)
    monkeypatch.setattr("tsdb.head.read.gather.BLOCK_SAMPLES", 60)
    parts = head.gather_raw(refs, 0, 9999, partial=True)
    assert whole.orders is not None
    assert parts.orders is not None
    assert whole.counts.tolist() == parts.counts.tolist()
    assert whole.ts_ms.tolist() == parts.ts_ms.tolist()
    assert whole.orders.tolist() == parts.orders.tolist()


def test_series_come_in_the_order_of_the_refs_also_without_samples() -> None:
    head = head_with([1.0, 2.0], series=2)
    raw = head.gather_raw(refs_of(head, [2, 1, 0, 2]), 0, 9999)
    assert raw.counts.tolist() == [0, 2, 2, 0]
    assert head.gather_raw(refs_of(head, []), 0, 9999).samples == 0
    assert head.gather_columns(refs_of(head, []), 0, 9999).samples == 0


def test_seen_gives_first_and_last_and_has_samples_whether_there_are_any() -> None:
    head = head_with([float(n) for n in range(40)])
    refs = refs_of(head, [0, 1])
    first, last = head.seen(refs)
    assert (first[0], last[0]) == (1000, 1390)
    assert first[1] > last[1]
    assert head.has_samples(refs, 1005, 1010).tolist() == [False, False]
    assert head.has_samples(refs, 1005, 1011).tolist() == [True, False]


def test_columns_come_whole_and_the_rest_as_an_overlay() -> None:
    head = head_with([float(n) for n in range(40)])
    result = head.gather_columns(refs_of(head, [0]), 1015, 1500)
    starts = result.columns.axis_base_ms.tolist()
    assert starts[0] <= 1015
    assert starts == sorted(starts)
    assert result.samples == 40 - sum(1 for ts in range(1000, 1400, 10) if ts < starts[0])
    assert (result.overlay.ts_ms > starts[-1]).all()
    assert result.payload_bytes > 0


def test_refs_that_may_not_be_written_to_are_read_like_any_other() -> None:
    head = head_with([1.0])
    refs = refs_of(head, [0])
    refs.flags.writeable = False
    assert head.gather_raw(refs, 0, 9999).samples == 1
    assert head.gather_columns(refs, 0, 9999).samples == 1


def test_watchers_get_every_visible_sample_once_per_offset() -> None:
    head = new_head(series=2)
    for offset in range(0, 40, 2):
        apply(head, [Record(offset, 1000 + offset, ((0, 1000 + offset, 1.0), (1, 5000, 2.0), (7, 1000, 3.0)))])
    seen: list[int] = []
    last = -1
    while len(seen) < 20:
        batches = head.watch_since(last)
        for batch in batches:
            assert (batch.refs == refs_of(head, [0])).all(), "neither ignored nor unknown samples"
            seen += batch.offsets.tolist()
            last = batch.last_offset
    assert seen == list(range(0, 40, 2))
    assert head.watch_since(last) == []
    assert np.concatenate([batch.offsets for batch in head.watch_since(21)]).tolist() == list(range(22, 40, 2))
