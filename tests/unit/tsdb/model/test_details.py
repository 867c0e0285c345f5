"""Details follow their samples through every selection and join."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.histograms import HistogramColumns, HistogramShape

SHAPES = (HistogramShape(0, 0.0, ((0, 2),)), HistogramShape(3, 0.1, ((-1, 1),), ((4, 2),)))

# A sample: its start timestamp, 0 for none, and its count of events in a histogram, None for a float.
SAMPLES = st.lists(st.tuples(st.sampled_from([0, 0, 1, 7]), st.none() | st.integers(0, 9)), max_size=12)


def details_of(samples: list[tuple[int, int | None]]) -> SampleDetails | None:
    counts = np.array([count for _, count in samples if count is not None], np.float64)
    shape_of = np.array([int(count) % 2 for count in counts], np.int32)
    widths = np.array([len(shape.indexes) for shape in SHAPES])[shape_of]
    columns = HistogramColumns(
        SHAPES,
        shape_of,
        np.concatenate((np.zeros(1, np.int64), np.cumsum(widths, dtype=np.int64))),
        np.repeat(counts, widths),
        counts,
        counts / 2,
        counts,
        np.zeros(len(counts), np.uint8),
        np.ones(len(counts), np.bool_),
    )
    is_float = np.array([count is None for _, count in samples], np.bool_)
    whole = SampleDetails(
        np.array([start for start, _ in samples], np.int64), columns, np.where(is_float, -1, np.cumsum(~is_float) - 1)
    )
    return whole.part(0, len(samples))


def rows_of(samples: int, details: SampleDetails | None) -> list[tuple[int, int | None, tuple[float, ...]]]:
    """(start, shape, buckets) of each sample, read one by one."""
    rows: list[tuple[int, int | None, tuple[float, ...]]] = []
    for i in range(samples):
        start = 0 if details is None or details.start_ms is None else int(details.start_ms[i])
        at = -1 if details is None or details.histogram_of is None else int(details.histogram_of[i])
        if at < 0 or details is None or details.histograms is None:
            rows.append((start, None, ()))
            continue
        columns = details.histograms
        shape = columns.shapes[columns.shape_of[at]]
        rows.append((start, SHAPES.index(shape), tuple(columns.buckets[columns.starts[at] : columns.starts[at + 1]])))
    return rows


@given(SAMPLES, st.data())
def test_a_selection_has_the_details_of_its_samples(samples: list[tuple[int, int | None]], data: st.DataObject) -> None:
    picked = data.draw(st.lists(st.integers(0, len(samples) - 1), max_size=8)) if samples else []
    details = details_of(samples)
    taken = None if details is None else details.take(np.array(picked, np.int64))
    all_rows = rows_of(len(samples), details)
    assert rows_of(len(picked), taken) == [all_rows[i] for i in picked]


@given(st.lists(SAMPLES, max_size=4))
def test_a_join_has_the_details_of_all_parts(parts: list[list[tuple[int, int | None]]]) -> None:
    joined = joined_details([(len(part), details_of(part)) for part in parts])
    assert rows_of(sum(map(len, parts)), joined) == [
        row for part in parts for row in rows_of(len(part), details_of(part))
    ]


def test_samples_without_details_have_no_columns() -> None:
    assert details_of([(0, None), (0, None)]) is None
    assert joined_details([(3, None), (0, None)]) is None
    only_start = details_of([(5, None)])
    assert only_start == SampleDetails(only_start.start_ms if only_start else None)
