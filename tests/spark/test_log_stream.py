"""A stream of the log has every sample once, with its labels, whatever is stopped; a position that is lost is named.

The first tests plan and read batches in this process, by the calls that Spark makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_backfill import register
from spark_backfill.failures import translate_spark_errors
from spark_backfill.places import Places
from spark_backfill.worker_log import close_worker_log
from support.servers.histories import META
from support.servers.logs import WITHIN_S, LogFactory, wait_until
from support.servers.node import Gateway, Node, label_set
from support.spark.sample_streams import Row, SampleStream, make_log, read_now, rows_of
from support.spark.spark import places
from tsdb.client.watch import WatchState
from tsdb.codec.records.log_record import encode_record, encode_tick
from tsdb.log.interface import METRICS, Log
from tsdb.log.settings import LogSettings
from tsdb.model.clock import SystemClock
from tsdb.model.errors import (
    HoleInRange,
    LostOffsets,
    OutOfCoverage,
    Overloaded,
    TsdbError,
    Unavailable,
    WrongTopic,
)
from tsdb.model.labels import parse_labels

SERIES = [label_set(number) for number in range(12)]
FOREIGN_SERIES = 7
FAST = LogSettings(request_timeout_s=1.0)


class Ground:
    """A log and its gateway."""

    def __init__(self, logs: LogFactory) -> None:
        self.logs = logs
        self.log: Log = make_log(logs)
        self.places: Places = places(logs)
        self.written: list[Row] = []
        self.now_ms = SystemClock().now_ms()
        self._gateway = Gateway(self.log)

    def write(self, steps: int, series: list[bytes] | None = None) -> None:
        """One sample of each series a step, a second apart."""
        chosen = SERIES if series is None else series
        for _ in range(steps):
            step = len(self.written)
            ts_ms, values = self.now_ms - 3_600_000 + 1_000 * step, np.arange(len(chosen)) + step + 0.5
            self._gateway.write(chosen, np.full(len(chosen), ts_ms), values)
            bits = values.view("u8").tolist()
            self.written += [(parse_labels(one), ts_ms, bit) for one, bit in zip(chosen, bits, strict=True)]

    def trim(self) -> dict[int, int]:
        """Remove the first half of each partition; the first offsets that are left."""
        marks = self.log.watermarks(METRICS, range(META.partitions))
        lows = {partition: (mark.low + mark.high + 1) // 2 for partition, mark in marks.items()}
        self.logs.topics().trim(METRICS, lows)
        return lows

    def remake(self) -> None:
        """The log topic is made anew, with fewer records."""
        self.logs.recreate(self.logs.topics(), METRICS, META.partitions)


@pytest.fixture
def ground(log_factory: LogFactory) -> Iterator[Ground]:
    yield Ground(log_factory)
    close_worker_log()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Ground]:
    """The ground of tests that run on the embedded log only."""
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "a.") as logs:
        yield Ground(logs)
        close_worker_log()


@pytest.mark.variant("kafka")
def test_every_sample_comes_once_in_small_batches_over_restarts(ground: Ground) -> None:
    ground.write(5)
    stream = SampleStream(ground.places, start="earliest", max_records_per_batch=4)
    first = stream.batch()
    assert first
    ground.write(4, SERIES + [label_set(number) for number in range(20, 24)])  # Announced after the table was read.
    found = first + stream.to_end(restarts=True)
    assert sorted(found) == sorted(ground.written)
    assert sorted(read_now(ground.places)) == sorted(ground.written)
    assert stream.batch() is None
    ground.write(1)
    assert sorted(stream.batch() or []) == sorted(ground.written[-len(SERIES) :])


def test_a_batch_repeated_after_a_restart_has_the_same_rows(ground: Ground) -> None:
    ground.write(3)
    stream = SampleStream(ground.places, start="earliest")
    end = stream.plan()
    rows = stream.read(end)
    ground.write(3)
    stream.restart()
    assert stream.read(end) == rows
    latest = SampleStream(ground.places)
    end = latest.plan()
    assert latest.read(end) == []
    ground.write(1)
    latest.restart()
    assert latest.read(end) == []  # The start of the first batch was recorded, not requested again.
    latest.offset = end
    assert sorted(latest.batch() or []) == sorted(ground.written[-len(SERIES) :])


def test_available_now_ends_at_the_records_of_its_start(local: Ground) -> None:
    local.write(3)
    stream = SampleStream(local.places, start="earliest", max_records_per_batch=2)
    stream.reader.prepareForTriggerAvailableNow()
    before = list(local.written)
    local.write(2)
    assert sorted(stream.to_end()) == sorted(before)
    seen = stream.reader.reportLatestOffset()
    assert seen is not None
    assert sum(seen["next_offsets"]) > sum(stream.offset["next_offsets"])
    stream.restart()
    end = stream.reader.latestOffset(stream.offset, ReadAllAvailable())
    assert sorted(stream.read(end)) == sorted(local.written[len(before) :])


def test_selector_and_times_choose_the_rows_of_the_batch_source(local: Ground) -> None:
    local.write(6)
    start_ms, end_ms = local.written[len(SERIES)][1], local.written[-1][1]
    options: dict[str, Any] = {"selector": 'm{n=~"[1-3]"}', "start_ms": start_ms, "end_ms": end_ms}
    stream = SampleStream(local.places, **options)
    found = sorted(stream.to_end())
    assert found == sorted(read_now(local.places, **options))
    assert len(found) == 3 * 4


def test_a_checkpoint_of_another_log_is_refused(ground: Ground) -> None:
    ground.write(3)
    stream = SampleStream(ground.places, start="earliest")
    stream.batch()
    ground.remake()
    for _ in range(2):
        with pytest.raises(WrongTopic, match=r"made anew.*new checkpoint"):
            stream.plan()
        stream.restart()


def test_a_checkpoint_of_another_prefix_is_refused(local: Ground, tmp_path: Path) -> None:
    stream = SampleStream(local.places, start="earliest")
    stream.batch()
    with LogFactory(f"sqlite:///{tmp_path}/other.db", "other.") as logs:
        make_log(logs)
        other = SampleStream(places(logs), start="earliest")
        other.offset = stream.offset
        with pytest.raises(WrongTopic, match=r"of log_prefix 'a\.'; the query has 'other\.': set the same") as refused:
            other.plan()
        assert refused.value.reason == "checkpoint_prefix"


def test_a_topic_made_anew_between_two_batches_is_refused_in_the_task(ground: Ground) -> None:
    ground.write(3)
    stream = SampleStream(ground.places, start="earliest")
    end = stream.plan()
    parts = stream.reader.partitions(stream.offset, end)
    ground.remake()
    with pytest.raises(WrongTopic, match=r"made anew|was deleted"):
        stream.rows(parts)


def test_records_trimmed_below_a_checkpoint_are_named_and_passed_over_on_request(ground: Ground) -> None:
    ground.write(8)
    stream = SampleStream(ground.places, start="earliest", max_records_per_batch=1)
    first = stream.batch() or []
    lows = ground.trim()
    end = stream.plan()
    with pytest.raises(
        HoleInRange, match=r"partition \d: the next record to read is 1, but the log begins at \d+: rec"
    ):
        stream.read(end)
    lenient = SampleStream(ground.places, start="earliest", allow_holes="true")
    lenient.offset = stream.offset
    rest = lenient.to_end()
    assert sorted(rest) == sorted(read_now(ground.places))
    assert not set(first) & set(rest)
    assert lenient.offset["next_offsets"] > list(lows.values())


def test_records_trimmed_after_the_plan_are_named_in_the_task(ground: Ground) -> None:
    ground.write(8)
    strict, lenient = (SampleStream(ground.places, start="earliest", allow_holes=holes) for holes in ("false", "true"))
    parts = {each: each.reader.partitions(each.offset, each.plan()) for each in (strict, lenient)}
    ground.trim()
    with pytest.raises(HoleInRange, match="are gone; continue without them with the option allow_holes=true"):
        strict.rows(parts[strict])
    assert sorted(lenient.rows(parts[lenient])) == sorted(read_now(ground.places))


def test_a_start_before_a_trimmed_log_is_refused(local: Ground) -> None:
    local.write(4)
    local.trim()
    with pytest.raises(OutOfCoverage, match="allow_holes=true"):
        SampleStream(local.places, start_ms=local.now_ms).plan()
    assert SampleStream(local.places, start="earliest").batch()
    assert SampleStream(local.places, start_ms=local.now_ms - 7_200_000, allow_holes="true").batch()


@pytest.mark.parametrize(("corrupt", "text"), [(True, "corrupt"), (False, "1 series were never announced")])
def test_a_hole_is_an_error_unless_it_is_allowed(local: Ground, text: str, *, corrupt: bool) -> None:
    local.write(2)
    foreign = np.array([FOREIGN_SERIES], np.uint64)
    record = encode_record(foreign, np.ones(1, np.uint32), foreign, np.array([local.now_ms]), np.ones(1))
    local.log.append_sync(METRICS, 1, b"\x00" * 40 if corrupt else record)
    with pytest.raises(HoleInRange, match=f"{text}; read past it with the option allow_holes=true"):
        SampleStream(local.places, start="earliest").batch()
    assert sorted(SampleStream(local.places, start="earliest", allow_holes="true").to_end()) == sorted(local.written)


def test_a_checkpoint_past_the_end_of_the_log_is_refused(local: Ground) -> None:
    local.write(2)
    stream = SampleStream(local.places, start="earliest")
    stream.batch()
    stream.offset["next_offsets"][0] += 100
    with pytest.raises(LostOffsets, match=r"the checkpoint is at record 1\d\d, but the log ends at"):
        stream.plan()


def test_ticks_move_the_stream_and_give_no_rows(local: Ground) -> None:
    stream = SampleStream(local.places, start="earliest")
    local.log.append_sync(METRICS, 0, encode_tick())
    assert stream.batch() == []
    assert stream.batch() is None


def test_labels_over_the_bound_of_a_worker_are_refused(local: Ground) -> None:
    local.write(1)
    with pytest.raises(Overloaded, match="limit is 100: raise the option labels_bytes_max"):
        SampleStream(local.places, start="earliest", labels_bytes_max=100).batch()
    assert SampleStream(local.places, start="earliest").batch()


def test_no_broker_is_one_line() -> None:
    stream = SampleStream(Places("kafka://127.0.0.1:9", log_settings=FAST), start="earliest")
    with pytest.raises(Unavailable) as refused:
        stream.plan()
    assert "\n" not in refused.value.message


def test_a_query_stopped_and_begun_again_equals_the_batch_source_and_watch(
    spark: SparkSession, ground: Ground, tmp_path: Path
) -> None:
    register(spark)
    ground.write(6)
    options = {**ground.places.options(), "start": "earliest", "max_records_per_batch": "6"}
    frame = spark.readStream.format("tsdb").options(**options).load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
    out = f"{tmp_path}/rows"

    running = writer.start(out)
    wait_until(lambda: len(running.recentProgress) >= 2, WITHIN_S)
    running.stop()
    with Node(ground.log) as node:
        node.wait_ready()
        begun = WatchState("m")
        begun.begin(node.client.coverage())
        before = len(ground.written)
        ground.write(3)
        watched: list[Row] = []
        for batch in node.client.watch("m", resume=begun.tokens, duration_s=WITHIN_S):
            samples = zip(
                batch.series_ids.tolist(), batch.ts_ms.tolist(), batch.values.view("u8").tolist(), strict=True
            )
            watched += [(parse_labels(batch.canonical[one]), ts_ms, bits) for one, ts_ms, bits in samples]
            if len(watched) == len(ground.written) - before:
                break
    with translate_spark_errors():
        writer.trigger(availableNow=True).start(out).awaitTermination()

    found = sorted(rows_of(spark.read.parquet(out).toArrow()))
    assert found == sorted(ground.written)
    assert found == sorted(read_now(ground.places))
    assert sorted(watched) == sorted(ground.written[before:])


def test_spark_reports_a_refusal_of_a_stream_in_one_line(spark: SparkSession, local: Ground, tmp_path: Path) -> None:
    register(spark)
    frame = spark.readStream.format("tsdb").options(**local.places.options(), strat="latest").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint")
    with pytest.raises(TsdbError, match="a stream has no option strat; did you mean start"), translate_spark_errors():
        writer.start().awaitTermination()
