"""Times and steps of calls have several types, and each mistake is named before a call."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support.fakes.fake_reader import FakeServer
from tsdb.client import InvalidRequest, RequestLimits, WatchBatch, WriteBatch, connect
from tsdb.client.arguments import ms_of, step_ms_of
from tsdb.client.query import query_range
from tsdb.client.select import select
from tsdb.model.labels import canonical_labels

NOON_MS = 1_577_880_000_000  # 2020-01-01T12:00Z
HOUR_MS = 3_600_000
NOON = [
    NOON_MS,
    np.int64(NOON_MS),
    datetime(2020, 1, 1, 12),
    datetime(2020, 1, 1, 12, tzinfo=UTC),
    pd.Timestamp("2020-01-01T13:00+01:00"),
    pd.Timestamp("2020-01-01T12:00"),
    np.datetime64("2020-01-01T12:00:00.000000001", "ns"),
    "2020-01-01T12:00Z",
    str(NOON_MS),
]


@pytest.mark.parametrize("given", NOON, ids=lambda given: f"{type(given).__name__} {given}")
def test_a_time_of_any_type_is_ms_since_the_epoch(given: Any) -> None:
    assert ms_of("start_ms", given) == NOON_MS
    request: Any = select("up", given, given).request
    assert (request.start_ms, request.end_ms) == (NOON_MS, NOON_MS)


def test_text_is_relative_to_now_as_in_commands() -> None:
    before_ms = time.time_ns() // 1_000_000
    hour, now = ms_of("start_ms", "-1h"), ms_of("end_ms", "now")
    after_ms = time.time_ns() // 1_000_000
    assert before_ms - HOUR_MS <= hour <= now - HOUR_MS
    assert now <= after_ms
    assert ms_of("start_ms", date(2020, 1, 1)) == NOON_MS - 12 * HOUR_MS


def test_large_integers_stay_as_they_are() -> None:
    assert [ms_of("end_ms", number) for number in (1_577_880_000, (1 << 63) - 1)] == [1_577_880_000, (1 << 63) - 1]


@pytest.mark.parametrize("step", [60_000, "1m", timedelta(minutes=1), pd.Timedelta("1min")])
def test_a_step_is_ms_a_timedelta_or_text(step: Any) -> None:
    assert step_ms_of("step_ms", step) == 60_000
    request: Any = query_range("up", "2020-01-01", "2020-01-02", step).request
    assert request.step_ms == 60_000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (1.5, r"start_ms is the float 1\.5: give an int, ms since epoch UTC"),
        (np.float64(2.5), "start_ms is the float .*give an int, ms since epoch UTC"),
        (True, "start_ms is bool; want a datetime"),
        ((2020, 1, 1), "start_ms is tuple; want a datetime"),
        (pd.NaT, "start_ms is NaT"),
        (np.datetime64("NaT"), "start_ms is NaT"),
        ("soon", "start_ms: 'soon' is neither ms since the epoch nor a time such as"),
        ("-1q", "start_ms: '1q' is not a duration"),
    ],
)
def test_another_time_is_refused_by_name(given: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"select: {words}") as refused:
        select("up", given, 1)
    assert refused.value.reason == "bad_argument"


@pytest.mark.parametrize("step", [1.5, True, "soon"])
def test_another_step_is_refused(step: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"query_range: step_ms.*(1\.5|True|soon)"):
        query_range("up", 0, 1, step)


@pytest.mark.parametrize("labels", [("up", "job"), [("up",)], "up", None, {"up"}])
def test_labels_that_are_no_mapping_are_refused_with_an_example(labels: Any) -> None:
    with pytest.raises(InvalidRequest, match=r'labels are .*give a dict such as \{"__name__": "up", "job": "demo"\}'):
        WriteBatch().add(labels, 1, 1.0)


def test_timestamps_of_pandas_are_written_and_read() -> None:
    batch = WriteBatch()
    batch.add({"__name__": "up"}, pd.date_range("2020-01-01T12:00", periods=2, freq="h"), [1.0, 2.0])
    (part,) = batch.parts(RequestLimits())
    assert np.frombuffer(part.request.ts_ms, np.int64).tolist() == [NOON_MS, NOON_MS + HOUR_MS]


def test_a_listing_takes_times_of_any_type() -> None:
    with FakeServer() as server, connect(server.address) as client:
        client.label_names(start_ms=datetime(2020, 1, 1, 12), end_ms=NOON_MS + 1)
        client.series("up", start_ms="2020-01-01T12:00", end_ms=NOON_MS + 1)
        asked: Any = [request for request in server.requests if hasattr(request, "start_ms")]
        assert [(one.start_ms, one.end_ms) for one in asked] == [(NOON_MS, NOON_MS + 1)] * 2


def test_a_batch_of_a_watch_has_its_labels() -> None:
    up = canonical_labels({"__name__": "up", "job": "a"})
    batch = WatchBatch(
        0, np.array([1, 2]), np.array([7, 7], np.uint64), np.array([1, 2]), np.array([1.0, 2.0]), {7: up}
    )
    assert batch.labels == {7: {"__name__": "up", "job": "a"}}
    assert list(batch.samples()) == [({"__name__": "up", "job": "a"}, 1, 1.0), ({"__name__": "up", "job": "a"}, 2, 2.0)]
