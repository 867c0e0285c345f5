"""A write into the log has the gateway's rules: it accepts each sample that the gateway accepts alone, and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.limits import IngestLimits, SeriesLimits
from ingest.pipeline import WritePipeline
from ingest.rows import make_rows
from spark_backfill.places import Places
from spark_backfill.source.columns import ARROW_MAP, ARROW_TS
from spark_backfill.writing.samples.options import SampleOptions
from spark_backfill.writing.samples.rows import RowBuffer, SampleBatch, whole_rows
from spark_backfill.writing.samples.sender import SampleSender, SendResult, forget_sender
from spark_backfill.writing.samples.writers import SamplesWritten, begin_sample_write, report, write_task
from support.examples import examples
from support.fakes.fake_log import FakeLog
from support.fakes.stand_in import StandIn
from support.servers.histories import META
from support.servers.logs import LogFactory
from support.spark.sample_streams import SampleStream, make_log
from support.spark.spark import places
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, InvalidRequest, Unavailable, WrongTopic
from tsdb.model.labels import LabelLimits
from tsdb.model.placement import PlacementRule
from tsdb.ops.lifecycle import Deadline

LIMITS = IngestLimits(labels=LabelLimits(labels_max=3, name_bytes_max=8, value_bytes_max=4, total_bytes_max=40))
DAY_MS = 24 * 3_600_000
NAMES = st.sampled_from(["__name__", "__id__", "", "job", "a", "too_long_a_name", "é"])
PAIRS = st.lists(st.tuples(NAMES, st.sampled_from(["", "x", "é", "longer"])), max_size=4)
NAMED = st.builds(lambda pairs: [("__name__", "m"), *pairs], PAIRS)
# Far from the ends of the accepted range, so that the time between two writes does not matter.
AGES = st.sampled_from([-DAY_MS, 0, DAY_MS, 4 * DAY_MS, 6 * DAY_MS, 40 * DAY_MS])
SAMPLES = st.lists(st.tuples(PAIRS | NAMED, AGES), min_size=1, max_size=12)
Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogFactory]:
    """An embedded log with settings."""
    with LogFactory(f"sqlite:///{tmp_path_factory.mktemp('sender')}/log.db", "") as factory:
        make_log(factory)
        yield factory


@pytest.fixture(scope="module")
def sender(logs: LogFactory) -> Iterator[SampleSender]:
    """A sender into this log."""
    made = SampleSender(SampleOptions(places(logs), LIMITS))
    yield made
    made.close()


@pytest.fixture(scope="module")
def every_sample(logs: LogFactory) -> SampleStream:
    """A stream of this log."""
    return SampleStream(places(logs))


@pytest.fixture
def stream(every_sample: SampleStream) -> SampleStream:
    """The stream, at the end of the log."""
    every_sample.to_end()
    return every_sample


def batch(samples: list[tuple[Pairs, int]], now_ms: int, first: int = 0) -> pa.RecordBatch:
    """Sample i has the value first + i."""
    labels = pa.array([pairs for pairs, _ in samples], ARROW_MAP)
    times = pa.array([(now_ms - age_ms) * 1000 for _, age_ms in samples], pa.int64()).cast(ARROW_TS)
    values = pa.array(first + np.arange(float(len(samples))))
    return pa.RecordBatch.from_arrays([labels, times, values], names=["labels", "ts", "value"])


def rows(made: pa.RecordBatch) -> SampleBatch:
    buffer, found = RowBuffer(), whole_rows(made)
    buffer.add(found.batch, found.joined)
    return buffer.drain()


def gateway() -> WritePipeline:
    """A gateway with these limits over another log."""
    log: Log = FakeLog(META.partitions, SystemClock())
    return WritePipeline(log, PlacementRule(), META.partitions, META.time_set, LIMITS, SystemClock())


GATEWAY = gateway()


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SAMPLES)
def test_each_sample_is_accepted_or_refused_as_by_the_gateway_alone(
    sender: SampleSender, stream: SampleStream, samples: list[tuple[Pairs, int]]
) -> None:
    now_ms = SystemClock().now_ms()
    refused: Counter[str] = Counter()
    accepted: list[tuple[object, int, float]] = []
    for at, (pairs, age_ms) in enumerate(samples):
        raw = b"\xff".join(text.encode() for pair in pairs for text in pair)
        times, values = np.array([now_ms - age_ms]), np.array([float(at)])
        result = GATEWAY.write(make_rows([raw], None, times, values), True, Deadline.after(10.0))
        refused.update(result.refused)
        if result.samples:
            accepted.append((tuple(sorted(pairs)), now_ms - age_ms, float(at)))
    sent = SendResult()
    sender.send(rows(batch(samples, now_ms)), sent, drop=True)
    assert (sent.refused, sent.samples) == (refused, len(accepted))
    found = [(labels, ts_ms, float(np.uint64(bits).view("f8"))) for labels, ts_ms, bits in stream.to_end()]
    assert sorted(found) == sorted(accepted)


@pytest.mark.parametrize(
    ("pairs", "age_ms", "text"),
    [
        (
            [("__name__", "m")],
            6 * DAY_MS,
            r"timestamp \d+ \(.*Z\) is 6.0 days old; the limit is 5 days; series m; .*import older",
        ),
        ([("__name__", "m")], -DAY_MS, r"is 86\d+ ms ahead of now; limit is 300000 ms; series m; .*clock"),
        ([("job", "x")], 0, r"no __name__ label; series 'job\|x'; .*correct the column labels"),
    ],
)
def test_a_refused_sample_is_named_with_its_limit_and_the_next_step(
    sender: SampleSender, stream: SampleStream, pairs: Pairs, age_ms: int, text: str
) -> None:
    good = [([("__name__", "good")], 0)] * 3
    with pytest.raises(InvalidRequest, match=text) as refused:
        sender.send(rows(batch([*good, (pairs, age_ms)], SystemClock().now_ms())), SendResult(), drop=False)
    assert "on_refused=drop" in refused.value.message
    assert "\n" not in refused.value.message
    assert stream.to_end() == []  # All rows of a request, or none.


def test_new_series_over_the_limit_of_their_source_are_refused(logs: LogFactory) -> None:
    limits = IngestLimits(series=SeriesLimits(source_series_max=2))
    limited = SampleSender(SampleOptions(places(logs), limits))
    made = batch([([("__name__", "m"), ("n", str(n))], 0) for n in range(5)], SystemClock().now_ms())
    with pytest.raises(InvalidRequest, match="source_series_max in the option ingest_settings") as refused:
        limited.send(rows(made), SendResult(), drop=False)
    assert refused.value.reason == "source_series_limit"
    sent = SendResult()
    limited.send(rows(made), sent, drop=True)
    assert (sent.samples, dict(sent.refused)) == (2, {"source_series_limit": 3})
    limited.close()


@pytest.mark.parametrize(("drop", "kept"), [(False, 0), (True, 1)])
def test_one_row_over_the_bytes_of_a_request_is_refused(logs: LogFactory, kept: int, *, drop: bool) -> None:
    small = SampleSender(SampleOptions(places(logs), IngestLimits(request_bytes_max=200)))
    made = batch([([("__name__", "m")], 0), ([("__name__", "x" * 500)], 0)], SystemClock().now_ms())
    sent = SendResult()
    if drop:
        small.send(rows(made), sent, drop=True)
        assert dict(sent.refused) == {"labels_too_long": 1}
    else:
        with pytest.raises(InvalidRequest, match="limit is 200"):
            small.send(rows(made), sent, drop=False)
    small.close()


class AwayLog(StandIn):
    """A log that refuses its first appends."""

    def __init__(self, log: Log, refusals: int, reason: str) -> None:
        super().__init__(log)
        self._left = refusals
        self._reason = reason

    def append(self, topic: str, *given: Any, **named: Any) -> None:
        if topic == METRICS and self._left:
            self._left -= 1
            raise Unavailable("the log is away", reason=self._reason)
        self._real.append(topic, *given, **named)


@dataclass(frozen=True, slots=True)
class AwayPlaces(Places):
    """Places of an AwayLog."""

    refusals: int = 0
    reason: str = "unavailable"

    def open_log(self) -> Log:
        away: Any = AwayLog(Places.open_log(self), self.refusals, self.reason)
        return away  # type: ignore[no-any-return]


def test_a_write_is_repeated_while_the_log_is_away_and_then_given_up(logs: LogFactory, stream: SampleStream) -> None:
    made = batch([([("__name__", "m")], 0)] * 4, SystemClock().now_ms())
    waits: list[float] = []
    back = SampleSender(SampleOptions(AwayPlaces(logs.url, refusals=3), LIMITS), wait=waits.append)
    sent = SendResult()
    back.send(rows(made), sent, drop=False)
    assert (sent.samples, len(waits)) == (4, 3)
    assert len(stream.to_end()) == 4
    for away, give_up_s in (
        (AwayPlaces(logs.url, refusals=3), 0.0),
        (AwayPlaces(logs.url, refusals=1, reason="clock"), 9.0),
    ):
        gone = SampleSender(SampleOptions(away, LIMITS), give_up_s=give_up_s, wait=waits.append)
        with pytest.raises(Unavailable, match="the log is away"):
            gone.send(rows(made), SendResult(), drop=False)
        gone.close()
    assert len(waits) == 3
    back.close()


def test_a_task_writes_its_rows_and_reports_what_it_left_out(logs: LogFactory, stream: SampleStream) -> None:
    now_ms = SystemClock().now_ms()
    batches = [batch([([("__name__", "m"), ("n", str(n % 3))], n)] * 10, now_ms, 10 * n) for n in range(6)]
    batches.append(batch([([("__name__", "m")], 40 * DAY_MS), ([("a", "b")], 0)], now_ms))
    try:
        done = write_task(iter(batches), SampleOptions(places(logs), LIMITS, drop=True))
        again = write_task(iter(batches), SampleOptions(places(logs), LIMITS, drop=True))
    finally:
        forget_sender()
    assert done == again
    assert (done.samples, done.refused) == (60, {"too_old": 1, "labels_malformed": 1})
    assert "3456" in done.example or "__name__" in done.example
    values: dict[object, list[float]] = {}
    for labels, ts_ms, bits in stream.to_end():
        values.setdefault((labels, ts_ms), []).append(float(np.uint64(bits).view("f8")))
    # Both times the last row of a (series, timestamp) has the highest order.
    assert [found[-1] for found in values.values()] == [found[len(found) // 2 - 1] for found in values.values()]


def test_a_task_holds_a_bounded_number_of_rows(logs: LogFactory, stream: SampleStream) -> None:
    """Half of the batches are written before the last is requested."""
    now_ms = SystemClock().now_ms()
    unread: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(8):
            if number == 7:
                unread.append(len(stream.to_end()))
            yield batch([([("__name__", "m"), ("n", str(n % 50))], n) for n in range(20_000)], now_ms)

    try:
        done = write_task(batches(), SampleOptions(places(logs)))
    finally:
        forget_sender()
    assert done.samples == 8 * 20_000
    assert unread[0] >= 4 * 20_000


def test_a_log_without_settings_is_refused(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as bare:
        bare.create(META.partitions)
        for write in (begin_sample_write, SampleSender):
            with pytest.raises(ConfigMismatch, match="run `tsdb topics create`"):
                write(SampleOptions(places(bare)))


@pytest.mark.parametrize(
    ("column", "text"),
    [("labels", "column labels has nulls"), ("ts", "column ts has nulls"), ("value", "pandas NaN.*on_refused=drop")],
)
def test_a_null_fails_the_task_before_it_writes(logs: LogFactory, stream: SampleStream, column: str, text: str) -> None:
    made = batch([([("__name__", "m")], 0)] * 2, SystemClock().now_ms())
    at = made.schema.get_field_index(column)
    kept = made.column(at).take(pa.array([0, None]))
    with pytest.raises(InvalidRequest, match=text):
        write_task(iter([made.set_column(at, column, kept)]), SampleOptions(places(logs), LIMITS))
    assert stream.to_end() == []


def test_the_driver_reports_samples_left_out_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    report([SamplesWritten("a", 1, 1), None, SamplesWritten("a", 1, 1, {"too_old": 2}, "series m")], batch=3)
    (refused,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "'too_old': 2" in refused
    assert "'example': 'series m'" in refused


def test_tasks_that_wrote_to_two_topics_are_an_error() -> None:
    with pytest.raises(WrongTopic, match="made anew during the write"):
        report([SamplesWritten("a", 1, 1), SamplesWritten("b", 1, 1)])
