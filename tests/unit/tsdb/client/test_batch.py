"""A batch reaches the gateway whole and in order, whatever the size of the requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsdb.client.batch import Exemplar, RequestLimits, RequestPart, WriteBatch
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels


def rows_of(parts: list[RequestPart]) -> list[tuple[int, bytes, int, float]]:
    """(series index in the batch, labels, ts, value) of every sample, in the order sent."""
    rows = []
    for part in parts:
        counts = np.frombuffer(part.request.sample_counts, "<u4")
        ts_ms, values = np.frombuffer(part.request.ts_ms, "<i8"), np.frombuffer(part.request.values, "<f8")
        assert counts.sum() == len(ts_ms) == len(values)
        entries = np.repeat(np.arange(len(counts)), counts).tolist()
        for entry, time, value in zip(entries, ts_ms.tolist(), values.tolist(), strict=True):
            rows.append((int(part.series_indexes[entry]), part.request.labels[entry], time, value))
    return rows


def test_labels_may_be_a_mapping_or_canonical_and_samples_scalars_or_arrays() -> None:
    batch = WriteBatch()
    batch.add({"__name__": "up", "job": "a"}, 1000, 1.0)
    batch.add(b"__name__\xffdown", [1000, 2000], [0.0, -0.0])
    assert (batch.series, batch.samples) == (2, 3)
    rows = rows_of(list(batch.parts(RequestLimits())))
    up = canonical_labels({"job": "a", "__name__": "up"})
    assert rows == [(0, up, 1000, 1.0), (1, b"__name__\xffdown", 1000, 0.0), (1, b"__name__\xffdown", 2000, -0.0)]


def test_values_keep_their_bits() -> None:
    bits = np.array([0x7FF0000000000002, 0xFFF8000000000001, 1 << 63, 1], np.uint64)
    batch = WriteBatch()
    batch.add({"__name__": "x"}, np.arange(4), bits.view(np.float64))
    [part] = batch.parts(RequestLimits())
    assert part.request.values == bits.tobytes()


@given(
    counts=st.lists(st.integers(0, 9), max_size=12),
    samples_max=st.integers(1, 12),
    series_max=st.integers(1, 5),
    bytes_max=st.integers(20, 400),
)
def test_requests_of_any_limits_hold_every_sample_once_and_in_order(
    counts: list[int], samples_max: int, series_max: int, bytes_max: int
) -> None:
    batch = WriteBatch()
    want = []
    for index, count in enumerate(counts):
        labels = b"__name__\xffm%d" % index
        times = [index * 100 + sample for sample in range(count)]
        batch.add(labels, np.array(times, np.int64), np.array(times, np.float64))
        want += [(index, labels, time, float(time)) for time in times]
    limits = RequestLimits(series_max, samples_max, bytes_max)
    parts = list(batch.parts(limits))
    assert rows_of(parts) == want
    for part in parts:
        samples = len(part.request.ts_ms) // 8
        assert 1 <= samples <= samples_max
        assert len(part.request.labels) <= series_max
        assert part.request.ByteSize() <= bytes_max + 60 or len(part.request.labels) == 1


def test_an_empty_batch_needs_no_request() -> None:
    assert list(WriteBatch().parts(RequestLimits())) == []


def test_partial_is_asked_for_in_every_request() -> None:
    batch = WriteBatch()
    batch.add(b"__name__\xffx", [1, 2, 3], [1, 2, 3])
    assert [part.request.partial for part in batch.parts(RequestLimits(samples_max=2), partial=True)] == [True, True]


def test_datetimes_become_milliseconds() -> None:
    batch = WriteBatch()
    batch.add(b"__name__\xffx", np.array(["2026-01-01T00:00:00.5"], "datetime64[ns]"), [1.0])
    [part] = batch.parts(RequestLimits())
    assert np.frombuffer(part.request.ts_ms, "<i8").tolist() == [1767225600500]


@pytest.mark.parametrize(
    ("ts_ms", "values", "what"),
    [
        ([1.5], [1.0], "float64"),
        ([1, 2], [1.0], "2 times, 1 values"),
        (["now"], [1.0], "want integers"),
        (np.array([1 << 63], np.uint64), [1.0], "beyond int64"),
    ],
)
def test_samples_that_do_not_fit_are_refused(ts_ms: object, values: object, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        WriteBatch().add({"__name__": "x"}, ts_ms, values)  # type: ignore[arg-type]


def test_counts_that_disagree_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="1 label sets, 2 counts of 3 samples"):
        WriteBatch().add_columns([b"__name__\xffx"], [1, 2], [1, 2, 3], [1, 2, 3])


def test_limits_of_nothing_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="above 0"):
        RequestLimits(samples_max=0)


@pytest.mark.parametrize(
    ("labels", "ts_ms", "values", "what"),
    [
        ({"__name__": "a"}, 1, None, "None"),
        ({"__name__": "a"}, [1, 2], [1.0, None], "None"),
        ({"__name__": "a"}, 1, True, "True"),
        ({"__name__": "a"}, [1, 2], [1.0, True], "True"),
        ({"__name__": "a"}, 1, "1.5", "'1.5'"),
        ({"__name__": "a"}, 1, 1j, "1j"),
        ({"__name__": "a"}, None, 1.0, "times"),
        ({"__name__": "a"}, True, 1.0, "times"),
        ({"__name__": "a"}, 1.5, 1.0, "times"),
        ({"__name__": "a"}, 1 << 70, 1.0, "times"),
        ({"__name__": "a", "b": None}, 1, 1.0, "label 'b' has the value None"),
        ({"__name__": "a", "b": 5}, 1, 1.0, "label 'b' has the value 5"),
        ({"__name__": "a", 5: "b"}, 1, 1.0, "label 5 has"),
        ({"__name__": "a", "b": "\ud800"}, 1, 1.0, "UTF-8"),
        (None, 1, 1.0, "samples"),
        ("a", 1, 1.0, "samples"),
    ],
)
def test_what_is_no_sample_is_an_error_that_names_it(labels: Any, ts_ms: Any, values: Any, what: str) -> None:
    batch = WriteBatch()
    with pytest.raises(InvalidRequest, match=what):
        batch.add(labels, ts_ms, values)
    assert (batch.series, batch.samples) == (0, 0)


@pytest.mark.parametrize("counts", [[-1], [1.5], [1 << 40], ["x"], [None]])
def test_counts_that_count_nothing_are_refused(counts: Any) -> None:
    with pytest.raises(InvalidRequest, match="counts must be integers"):
        WriteBatch().add_columns([b"__name__\xffa"], counts, [1], [1.0])


UTC_MS = 1_767_225_600_123  # 2026-01-01T00:00:00.123Z


@pytest.mark.parametrize(
    "times",
    [
        np.array(["2026-01-01T00:00:00.123"], "datetime64[ns]"),
        np.array(["2026-01-01T00:00:00.123"], "datetime64[us]"),
        pd.Series(pd.to_datetime(["2026-01-01T00:00:00.123"])),
        pd.Series(pd.to_datetime(["2026-01-01T00:00:00.123Z"])),
        pd.Series(pd.to_datetime(["2026-01-01T05:30:00.123+05:30"])),
        pd.DatetimeIndex(["2026-01-01T00:00:00.123"], tz="UTC"),
        [pd.Timestamp("2026-01-01T00:00:00.123Z")],
        [datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)],
        datetime(2026, 1, 1, 0, 0, 0, 123_000),
    ],
    ids=range(9),
)
def test_times_of_numpy_and_pandas_are_taken_to_the_millisecond(times: Any) -> None:
    batch = WriteBatch()
    batch.add(b"__name__\xffx", times, [1.0])
    (part,) = batch.parts(RequestLimits(), partial=False)
    assert np.frombuffer(part.request.ts_ms, np.int64).tolist() == [UTC_MS]


@pytest.mark.parametrize(
    ("times", "reason", "what"),
    [
        (np.array(["2026-01-01T00:00:00.1230004"], "datetime64[ns]"), "fine_time", "astype"),
        (np.array(["2026-01-01T00:00:00.000001"], "datetime64[us]"), "fine_time", "finer than a millisecond"),
        (np.array(["1960-01-01T00:00:00.000001"], "datetime64[us]"), "fine_time", "finer than a millisecond"),
        ([pd.Timestamp("2026-01-01T00:00:00.123000001Z")], "fine_time", "finer than a millisecond"),
        (pd.Series(pd.to_datetime(["2026-01-01T00:00:00.1234Z"])), "fine_time", "finer than a millisecond"),
        (np.array(["2026-01-01", "NaT"], "datetime64[ns]"), "bad_time", "NaT"),
        ([pd.NaT], "bad_time", "NaT"),
        ([1.5], "bad_time", "float64"),
    ],
    ids=range(8),
)
def test_times_that_are_no_whole_milliseconds_are_refused(times: Any, reason: str, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what) as refused:
        WriteBatch().add(b"__name__\xffx", times, np.ones(len(times)))
    assert refused.value.reason == reason


def exemplars_of(parts: list[RequestPart]) -> list[tuple[int, int, float, bytes]]:
    """(series index in the batch, ts, value, labels) of every exemplar, in the order sent."""
    found = []
    for part in parts:
        request = part.request
        rows = np.frombuffer(request.exemplar_series, "<u4").tolist()
        times, values = np.frombuffer(request.exemplar_ts_ms, "<i8"), np.frombuffer(request.exemplar_values, "<f8")
        ends = np.cumsum(np.frombuffer(request.exemplar_label_lengths, "<u4")).tolist()
        assert len(rows) == len(times) == len(values) == len(ends)
        for row, ts_ms, value, start, end in zip(rows, times.tolist(), values.tolist(), [0, *ends], ends, strict=False):
            found.append((int(part.series_indexes[row]), ts_ms, value, request.exemplar_labels[start:end]))
    return found


@given(samples_max=st.integers(1, 12), series_max=st.integers(1, 5), bytes_max=st.integers(20, 400))
def test_each_exemplar_is_sent_once_beside_a_sample_of_its_series(
    samples_max: int, series_max: int, bytes_max: int
) -> None:
    batch, want = WriteBatch(), []
    for number in range(5):
        exemplars = [Exemplar({"t": str(index)}, index / 2, index) for index in range(number)]
        batch.add({"__name__": f"m{number}"}, np.arange(3), np.arange(3.0), exemplars)
        want += [(number, index, index / 2, b"t\xff%d" % index) for index in range(number)]
    parts = list(batch.parts(RequestLimits(series_max, samples_max, bytes_max)))
    assert exemplars_of(parts) == want
    assert len(rows_of(parts)) == 15


def test_a_batch_without_exemplars_has_the_request_that_it_had() -> None:
    batch = WriteBatch()
    batch.add({"__name__": "x"}, 1, 1.0)
    [part] = batch.parts(RequestLimits())
    assert not part.request.exemplar_series
    assert not part.request.exemplar_label_lengths


@pytest.mark.parametrize(
    ("times", "exemplars"),
    [
        ([], [Exemplar({}, 1.0, 1)]),
        ([1], [Exemplar({}, "a", 1)]),  # type: ignore[arg-type]
        ([1], [Exemplar({}, 1.0, 1.5)]),  # type: ignore[arg-type]
        ([1], [Exemplar({"a": 1}, 1.0, 1)]),  # type: ignore[dict-item]
    ],
)
def test_exemplars_that_cannot_be_sent_are_refused_and_the_batch_stays(times: list[int], exemplars: Any) -> None:
    batch = WriteBatch()
    with pytest.raises(InvalidRequest):
        batch.add({"__name__": "x"}, times, [1.0] * len(times), exemplars)
