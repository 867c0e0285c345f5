"""Histograms of the client reach the gateway's rows bit for bit, and come back as the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ingest.grpc.write_request import decode_write_request
from support.data.detail_cases import histograms
from tsdb.client.batch import RequestLimits, WriteBatch
from tsdb.client.histogram import Histogram, histograms_of
from tsdb.model.details import SampleDetails, joined_details, same_details
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels

LABELS = {"__name__": "h"}
VALUES = [
    Histogram(3, 8.5, {-20: 4, -19: 0, 2: 1}, {5: 2}, zero_count=3, zero_threshold=2.0**-128),
    Histogram(sum=1.5, positive={0: 1, 3: 2}, bounds=(0.1, 0.5, 2.5)),
    Histogram(0, 0.25, {1: 0.5}, is_integer=False, reset_hint="gauge"),
    Histogram(-4, float("nan"), {}, reset_hint="reset"),
]


def received(
    batch: WriteBatch, limits: RequestLimits | None = None
) -> tuple[NDArray[np.float64], SampleDetails | None]:
    """Values and details of all samples as a gateway decodes them."""
    parts = batch.parts(limits or RequestLimits())
    rows = [decode_write_request(part.request.SerializeToString()).rows for part in parts]
    assert not any(one.errors for one in rows)
    return np.concatenate([one.values for one in rows]), joined_details([(one.samples, one.details) for one in rows])


def test_a_value_arrives_and_is_read_back_as_it_was() -> None:
    batch = WriteBatch()
    mixed: list[Histogram | float] = [*VALUES, 7.5]
    batch.add(LABELS, [1000, 2000, 3000, 4000, 5000], mixed, start_ms=500)
    values, details = received(batch)
    assert details is not None
    assert details.start_ms is not None
    assert details.start_ms.tolist() == [500] * 5
    found = histograms_of(details, 0, 5)
    assert found[:3] == VALUES[:3]
    assert str(found[3]) == str(Histogram(-4, float("nan"), {}, count=0.0, reset_hint="reset"))
    assert found[4] is None
    np.testing.assert_array_equal(values, [8.5, 1.5, 0.25, np.nan, 7.5])


def test_one_histogram_is_one_sample() -> None:
    batch = WriteBatch()
    batch.add(LABELS, 1000, VALUES[0])
    assert batch.samples == 1
    _, details = received(batch)
    assert histograms_of(details, 0, 1) == [VALUES[0]]


@pytest.mark.parametrize("bytes_max", [1, 700, 3000, 1 << 20])
def test_requests_of_any_size_have_each_histogram_once(bytes_max: int) -> None:
    columns = histograms([0, 0, 1, 1, 4, 1, 1, 2, 2, 2, 0, 0], 3)
    of = np.array([-1, 0, 1, 2, -1, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    sums = np.where(of >= 0, columns.sums[np.maximum(of, 0)], 7.0)
    starts = np.where(of >= 3, 100, 0)
    batch = WriteBatch()
    batch.add_columns([canonical_labels(LABELS)], [4], np.arange(4), np.zeros(4))
    names = [canonical_labels({**LABELS, "n": str(number)}) for number in range(2)]
    batch.add_columns(names, [9, 5], np.arange(14), sums, details=SampleDetails(starts, columns, of))
    limits = RequestLimits(bytes_max=bytes_max)
    assert (len(list(batch.parts(limits))) > 1) == (bytes_max < 1 << 20)
    values, details = received(batch, limits)
    assert (values[4:].view(np.int64) == sums.view(np.int64)).all()
    assert details is not None
    assert same_details(details.part(4, 18), SampleDetails(starts, columns, of))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"schema": 9}, "histogram_invalid_schema"),
        ({"schema": 0, "positive": {0: -1}}, "histogram_negative_bucket_count"),
        ({"schema": 0, "positive": {0: 1}, "count": 3}, "histogram_count_mismatch"),
        ({"schema": 0, "positive": {1 << 31: 1}}, "histogram_span_out_of_range"),
        ({"positive": {2: 1}, "bounds": (1.0,)}, "histogram_custom_bounds_few"),
        ({"positive": {0: 1}, "bounds": (2.0, 1.0)}, "histogram_custom_bounds_invalid"),
        ({"bounds": (1.0,), "zero_count": 1}, "histogram_custom_buckets_zero_count"),
        ({"schema": 0, "positive": dict.fromkeys(range(70_000), 1)}, "histogram_too_many_buckets"),
    ],
)
def test_a_value_without_a_meaning_is_refused_by_the_reason_of_the_gateway(value: dict[str, Any], reason: str) -> None:
    batch = WriteBatch()
    with pytest.raises(InvalidRequest) as refused:
        batch.add(LABELS, 1000, Histogram(**value))
    assert refused.value.reason == reason
    assert batch.samples == 0


@pytest.mark.parametrize("odd", [None, True, "1"])
def test_what_is_neither_a_number_nor_a_histogram_is_refused(odd: Any) -> None:
    with pytest.raises(InvalidRequest, match="values must be numbers"):
        WriteBatch().add(LABELS, [1, 2], [VALUES[0], odd])


def test_an_unknown_hint_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="known: unknown, reset, not_reset, gauge"):
        Histogram(0, reset_hint="no")  # type: ignore[arg-type]  # What a caller without types may write.


def test_details_that_do_not_fit_the_samples_are_refused() -> None:
    batch = WriteBatch()
    columns = VALUES[1].columns()
    for details, text in (
        (SampleDetails(np.zeros(2, np.int64)), "details of"),
        (SampleDetails(None, columns, np.array([0])), "must be its sum"),
    ):
        with pytest.raises(InvalidRequest, match=text):
            batch.add_columns([canonical_labels(LABELS)], [1], [1000], [1.0], details=details)
    assert batch.samples == 0
