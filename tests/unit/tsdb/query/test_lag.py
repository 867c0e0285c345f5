"""A lag beyond the freshness objective is stated by each answer that it can touch, and by no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from support.servers.queriers import context, stored
from support.servers.seams import END_MS, START_MS, WINDOW_MS, Seam
from tsdb.answer.spec import ReadOptions
from tsdb.client.options import wire_matchers
from tsdb.model.errors import Unavailable
from tsdb.v1 import reader_pb2

MATCHERS = wire_matchers('{job="test"}')
Options = reader_pb2.ReadOptions
Read = Callable[[Seam, int, Options], Sequence[str]]
PAST_MS = START_MS + WINDOW_MS  # Only history lags.
LAG_MS = 3_000


@pytest.fixture
def seam() -> Seam:
    return Seam()


def select(seam: Seam, end_ms: int, options: Options) -> Sequence[str]:
    request = reader_pb2.SelectRequest(matchers=MATCHERS, start_ms=START_MS, end_ms=end_ms, options=options)
    return reader_pb2.SelectResponse.FromString(next(iter(seam.service.Select(request, context())))).header.warnings


def select_from_memory(seam: Seam, end_ms: int, options: Options) -> Sequence[str]:
    start_ms = min(seam.coverage_ms, end_ms - 1)
    request = reader_pb2.SelectRequest(matchers=MATCHERS, start_ms=start_ms, end_ms=end_ms, options=options)
    return reader_pb2.SelectResponse.FromString(next(iter(seam.service.Select(request, context())))).header.warnings


def series(seam: Seam, end_ms: int, options: Options) -> Sequence[str]:
    request = reader_pb2.SeriesRequest(matchers=MATCHERS, start_ms=START_MS, end_ms=end_ms, options=options)
    return next(iter(seam.service.Series(request, context()))).header.warnings


def label_names(seam: Seam, end_ms: int, options: Options) -> Sequence[str]:
    request = reader_pb2.LabelNamesRequest(start_ms=START_MS, end_ms=end_ms, options=options)
    return seam.service.LabelNames(request, context()).header.warnings


def label_values(seam: Seam, end_ms: int, options: Options) -> Sequence[str]:
    request = reader_pb2.LabelValuesRequest(name="job", start_ms=START_MS, end_ms=end_ms, options=options)
    return seam.service.LabelValues(request, context()).header.warnings


def promql(seam: Seam, end_ms: int, options: Options) -> Sequence[str]:
    request = reader_pb2.QueryRequest(
        query='{job="test"}', start_ms=end_ms - 1, end_ms=end_ms - 1, lookback_ms=end_ms - START_MS, options=options
    )
    return next(iter(seam.service.Query(request, context()))).header.warnings


def storage(seam: Seam, end_ms: int, options: Options) -> Sequence[str]:
    max_lag_ms = options.max_lag_ms if options.HasField("max_lag_ms") else None
    accepted = ReadOptions(allow_stale=options.allow_stale, max_lag_ms=max_lag_ms)
    return stored(seam.sources, '{job="test"}', START_MS, end_ms - 1, accepted).warnings


READS: list[Read] = [select, select_from_memory, series, label_names, label_values, promql, storage]


def lag(seam: Seam, lag_ms: int = LAG_MS) -> int:
    """The log goes on by 10 records, and the store does not. Returns the time now."""
    clock, partition = seam.served.clock, seam.served.partitions[0]
    seam.served.catch_up()
    assert partition.is_ready()
    caught_up_at = clock.monotonic() - 1  # `catch_up` ends a second later.
    partition.observe_high_watermark(seam.head.next_offset + 10, clock.monotonic())
    clock.advance(lag_ms - round((clock.monotonic() - caught_up_at) * 1000))
    partition.observe_high_watermark(seam.head.next_offset + 10, clock.monotonic())
    return clock.now_ms()


@pytest.mark.parametrize("read", READS)
def test_an_answer_that_a_lag_can_touch_states_it(seam: Seam, read: Read) -> None:
    now_ms = lag(seam)
    for end_ms in (now_ms, now_ms - LAG_MS + 1, now_ms + 60_000):
        [warning] = read(seam, end_ms, Options())
        assert "partition 0 is behind the log: lagging, lag 3000 ms" in warning


@pytest.mark.parametrize("read", READS)
def test_an_answer_that_ends_before_the_lag_has_no_warning(seam: Seam, read: Read) -> None:
    now_ms = lag(seam)
    for end_ms in (PAST_MS, END_MS, now_ms - LAG_MS):
        assert list(read(seam, end_ms, Options())) == []


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("lag_ms", [1000, 1001])
def test_the_objective_is_one_second(seam: Seam, read: Read, lag_ms: int) -> None:
    now_ms = lag(seam, lag_ms)
    assert len(read(seam, now_ms, Options())) == (lag_ms > 1000)


@pytest.mark.parametrize("read", READS)
def test_max_lag_refuses_what_a_larger_lag_can_touch(seam: Seam, read: Read) -> None:
    now_ms = lag(seam)
    with pytest.raises(Unavailable, match="the request allows 2999 ms") as refused:
        read(seam, now_ms, Options(max_lag_ms=LAG_MS - 1))
    assert refused.value.reason == "lagging"
    assert len(read(seam, now_ms, Options(max_lag_ms=LAG_MS))) == 1
    assert list(read(seam, PAST_MS, Options(max_lag_ms=0))) == []


@pytest.mark.parametrize("read", READS)
def test_without_the_log_ranges_of_the_past_are_answered(seam: Seam, read: Read) -> None:
    now_ms = lag(seam)
    seam.served.clock.advance(60_000)
    assert list(read(seam, PAST_MS, Options())) == []
    with pytest.raises(Unavailable) as refused:
        read(seam, now_ms, Options())
    assert refused.value.reason == "high_watermark_old"
    [warning] = read(seam, now_ms + 60_000, Options(allow_stale=True))
    assert "high_watermark_old, lag 63000 ms" in warning


def test_labels_in_memory_have_no_end_and_cardinality_has_none_either(seam: Seam) -> None:
    lag(seam)
    assert len(seam.service.LabelNames(reader_pb2.LabelNamesRequest(), context()).header.warnings) == 1
    assert len(seam.service.Cardinality(reader_pb2.CardinalityRequest(), context()).header.warnings) == 1
