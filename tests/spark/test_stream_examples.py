"""The examples of streams and of writes into the log: each leaves the samples that its docstring promises."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from examples.spark_anomaly_score import write_scores
from examples.spark_json_to_samples import json_to_samples
from examples.spark_recording_rule import recording_rule
from spark_backfill.failures import translate_spark_errors
from support.servers.logs import LogFactory
from support.servers.node import Gateway
from support.spark.sample_streams import read_now
from support.spark.spark import places
from tsdb.model.clock import SystemClock
from tsdb.model.labels import canonical_labels

MINUTE_MS = 60_000
JOBS = ("api", "web")


def series(name: str, job: str, instance: int) -> bytes:
    return canonical_labels({"__name__": name, "job": job, "instance": f"i{instance}"})


def values_of(logs: LogFactory, selector: str) -> dict[tuple[tuple[tuple[str, str], ...], int], float]:
    """The answers of the log: the last value of each series and time."""
    found = read_now(places(logs), selector=selector, splits=1)
    return {(labels, ts_ms): float(np.uint64(bits).view("f8")) for labels, ts_ms, bits in found}


def test_the_recording_rule_writes_means_of_five_minutes_and_twice_the_same(
    spark: SparkSession, plain_log: LogFactory, tmp_path: Path
) -> None:
    gateway = Gateway(plain_log.open())
    start_ms = (SystemClock().now_ms() // (5 * MINUTE_MS) - 5) * 5 * MINUTE_MS
    labels = [series("latency", job, instance) for job in JOBS for instance in range(2)]
    for minute in range(18):
        ts_ms = start_ms + minute * MINUTE_MS
        gateway.write(labels, np.full(4, ts_ms), np.arange(4.0) + 10 * minute)
        gateway.write([series("other", "api", 0)], [ts_ms], [1e9])

    def run(checkpoint: str) -> dict[tuple[tuple[tuple[str, str], ...], int], float]:
        options = {name: value for name, value in places(plain_log).options().items() if name.startswith("log")}
        rule = recording_rule(spark, options, "latency", f"{tmp_path}/{checkpoint}", "earliest")
        with translate_spark_errors():
            rule.trigger(availableNow=True).start().awaitTermination()
        return values_of(plain_log, "job:latency:mean5m")

    once = run("first")
    name = ("__name__", "job:latency:mean5m")
    # Three windows are over and two minutes past; the fourth has samples of three minutes.
    assert once == {
        ((name, ("job", job)), start_ms + (window + 1) * 5 * MINUTE_MS): 2.0 * at + 0.5 + 10 * (5 * window + 2)
        for at, job in enumerate(JOBS)
        for window in range(3)
    }
    assert run("second") == once


def test_anomaly_scores_become_series(spark: SparkSession, plain_log: LogFactory) -> None:
    gateway = Gateway(plain_log.open())
    start_ms = SystemClock().now_ms() - 3_600_000
    one = series("load", "node", 1)
    values = np.tile([1.0, 3.0], 15)
    values[25] = 50.0
    gateway.write([one], start_ms + 1_000 * np.arange(30), values, [30])
    options = {name: value for name, value in places(plain_log).options().items() if name.startswith("log")}
    with translate_spark_errors():
        write_scores(spark, options, "load", start_ms)
    scores = values_of(plain_log, "load:anomaly_score")
    assert {dict(labels)["instance"] for labels, _ in scores} == {"i1"}
    assert max(scores, key=lambda key: scores[key])[1] == start_ms + 25_000
    before = values[:25]
    assert scores[max(scores, key=lambda key: scores[key])] == pytest.approx((50 - before.mean()) / before.std(ddof=1))


def test_json_messages_become_samples_and_others_are_left_out(
    spark: SparkSession, plain_log: LogFactory, tmp_path: Path
) -> None:
    now_ms = SystemClock().now_ms() // 1000 * 1000
    at = np.datetime_as_string(np.datetime64(now_ms, "ms"), timezone="UTC")
    folder = tmp_path / "json"
    folder.mkdir()
    good = [json.dumps({"sensor": f"s{n}", "at": str(at), "kelvin": 280.15 + n}) for n in range(3)]
    bad = [
        "no json",
        '{"sensor": null, "at": "2020"}',
        json.dumps({"sensor": "s9", "at": "2001-01-01T00:00:00Z", "kelvin": 1}),
    ]
    (folder / "one.json").write_text("\n".join([*good, *bad]))
    options = {name: value for name, value in places(plain_log).options().items() if name.startswith("log")}
    query = json_to_samples(spark, str(folder), options, f"{tmp_path}/checkpoint")
    with translate_spark_errors():
        query.trigger(availableNow=True).start().awaitTermination()
    assert {
        (dict(labels)["instance"], ts_ms, round(value, 6))
        for (labels, ts_ms), value in values_of(plain_log, "").items()
    } == {(f"s{n}", now_ms, 7.0 + n) for n in range(3)}
