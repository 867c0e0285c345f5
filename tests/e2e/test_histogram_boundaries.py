"""Attacks the promise that a read is exact with native histograms that lose boundaries: none of the old ones answers.

By remote write and OTLP, of counters and gauges, with and without a kill between the two samples, also where a series
ends after the kill.
"""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.otlp.receivers import PATHS
from ingest.remote_write.protocol import PATH
from support.data.otlp_requests import export_request
from support.senders.remote_write import request_1, snappy
from support.servers.logs import wait_until
from support.servers.processes import Role

# Index of the first bucket, and counts; bucket i of schema 0 ends at 2 ** i. Boundaries reach 8 before the change, and
# 0.5 after it.
BEFORE = (-1, [4, 3, 2, 1, 5])
AFTER = (-3, [1, 3, 6])
EMPTY: tuple[int, list[int]] = (0, [])
STALE_SUM = float("nan")
LABELS = {"__name__": "lat", "job": "api", "instance": "i"}
Buckets = tuple[int, list[int]]


def by_remote_write(role: Role, buckets: Buckets, ts_ms: int, *, hint: int = 0, stale: bool = False) -> None:
    first, counts = buckets
    message = request_1([(LABELS, [])])
    one = message.timeseries[0].histograms.add(schema=0, timestamp=ts_ms, reset_hint=hint, count_int=sum(counts))
    one.sum = _stale() if stale else 1.0
    if counts:
        one.positive_spans.add(offset=first, length=len(counts))
        deltas = [after - before for before, after in zip([0, *counts], counts, strict=False)]
        one.positive_deltas.extend(deltas)
    post(role, PATH, snappy(message))


def by_gauge(role: Role, buckets: Buckets, ts_ms: int, *, stale: bool = False) -> None:
    by_remote_write(role, buckets, ts_ms, hint=3, stale=stale)


def by_otlp(role: Role, buckets: Buckets, ts_ms: int, *, stale: bool = False) -> None:
    first, counts = buckets
    point = pb.ExponentialHistogramDataPoint(time_unix_nano=ts_ms * 1_000_000, count=sum(counts), sum=1.0, scale=0)
    point.flags = 1 if stale else 0
    if counts:
        point.positive.offset = first - 1  # OTLP names a bucket by its lower end.
        point.positive.bucket_counts.extend(counts)
    data = pb.ExponentialHistogram(data_points=[point], aggregation_temporality=pb.AGGREGATION_TEMPORALITY_CUMULATIVE)
    request = export_request(
        pb.Metric(name="lat", exponential_histogram=data), service__name="api", service__instance__id="i"
    )
    post(role, PATHS[0], request.SerializeToString())


def _stale() -> float:
    import struct

    return float(struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0])


def post(role: Role, path: str, body: bytes) -> None:
    headers = {"content-type": "application/x-protobuf"}
    if path == PATH:
        headers["content-encoding"] = "snappy"
    with urllib.request.urlopen(urllib.request.Request(f"http://{role.http}{path}", body, headers), timeout=30) as got:
        assert got.status in (200, 204)


def query(role: Role, expression: str, at_ms: int) -> list[Any]:
    parameters = urllib.parse.urlencode({"query": expression, "time": at_ms / 1000})
    with urllib.request.urlopen(f"http://{role.http}/api/v1/query?{parameters}", timeout=30) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
    return found


def boundaries(role: Role, at_ms: int) -> dict[str, float]:
    return {one["metric"]["le"]: float(one["value"][1]) for one in query(role, "lat_bucket", at_ms)}


def expected_quantile(quantile: float, buckets: Buckets) -> float:
    """The quantile that Prometheus computes: linear within the bucket that has the rank."""
    first, counts = buckets
    rank, below = quantile * sum(counts), 0
    for index, count in enumerate(counts, start=first):
        if below + count >= rank:
            start = 2.0 ** (index - 1)
            return start + (2.0**index - start) * (rank - below) / count
        below += count
    raise AssertionError(quantile)


WAYS: dict[str, Callable[..., None]] = {"remote write": by_remote_write, "gauge": by_gauge, "OTLP": by_otlp}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("histograms")


@pytest.mark.parametrize("killed", [False, True], ids=["in one process", "after a kill"])
def test_boundaries_that_are_gone_answer_no_more(tmp_path: Path, killed: bool) -> None:
    classic = ("standalone", "--data-dir", str(tmp_path / "data"), "--native-histograms", "classic")
    with Role(tmp_path, *classic) as role:
        ts_ms = time.time_ns() // 1_000_000 - 60_000
        for case, (name, write) in enumerate(WAYS.items()):
            LABELS["__name__"] = "lat"
            at_ms = ts_ms + 20_000 * case
            write(role, BEFORE, at_ms)
            wait_until(lambda at_ms=at_ms: "8" in boundaries(role, at_ms))  # type: ignore[misc]
            if killed:
                role.kill()
                role.start()
            write(role, AFTER, at_ms + 1)
            wait_until(lambda at_ms=at_ms: "0.125" in boundaries(role, at_ms + 1))  # type: ignore[misc]
            found = boundaries(role, at_ms + 1)
            assert found.pop("+Inf") == 10.0, name
            assert set(found) - {"0"} == {"0.0625", "0.125", "0.25", "0.5"}, name
            got = query(role, "histogram_quantile(0.9, lat_bucket)", at_ms + 1)
            assert [float(one["value"][1]) for one in got] == [pytest.approx(expected_quantile(0.9, AFTER))], name
            if killed:
                role.kill()
                role.start()
            write(role, EMPTY, at_ms + 2)
            wait_until(lambda at_ms=at_ms: boundaries(role, at_ms + 2).get("+Inf") == 0.0)  # type: ignore[misc]
            assert set(boundaries(role, at_ms + 2)) <= {"+Inf", "0"}, name
            write(role, BEFORE, at_ms + 3)
            wait_until(lambda at_ms=at_ms: "8" in boundaries(role, at_ms + 3))  # type: ignore[misc]
            if killed:
                role.kill()
                role.start()
            write(role, EMPTY, at_ms + 4, stale=True)
            wait_until(lambda at_ms=at_ms: boundaries(role, at_ms + 4) == {})  # type: ignore[misc]


@pytest.mark.parametrize("way", ["remote write", "OTLP"])
def test_a_kept_histogram_answers_whole_after_a_kill(tmp_path: Path, way: str) -> None:
    keep = ("standalone", "--data-dir", str(tmp_path / "data"), "--native-histograms", "keep")
    with Role(tmp_path, *keep) as role:
        now_ms = int(time.time() * 1000)
        for number in range(3):
            WAYS[way](role, BEFORE, now_ms - 2000 + 1000 * number)
        wait_until(lambda: query(role, "count_over_time(lat[10s]) == 3", now_ms) != [])
        before = whole(role, now_ms)
        role.kill()
        role.start()
        wait_until(lambda: whole(role, now_ms) == before)
    first, counts = BEFORE
    buckets = [[0, 2.0 ** (first + at - 1), 2.0 ** (first + at), count] for at, count in enumerate(counts)]
    assert before == (sum(counts), 1.0, buckets, "3")


def whole(role: Role, at_ms: int) -> tuple[float, float, list[list[float]], str]:
    """(count, sum, buckets) of the newest histogram, and the number of histograms in ten seconds."""
    (found,) = query(role, "lat", at_ms)
    shown = found["histogram"][1]
    (number,) = query(role, "count_over_time(lat[10s])", at_ms)
    buckets = [[float(part) for part in bucket] for bucket in shown["buckets"]]
    return float(shown["count"]), float(shown["sum"]), buckets, number["value"][1]


RULES = """
groups:
- name: g
  interval: 1s
  rules: [{record: recorded, expr: "sum(lat)"}]
"""


def test_a_rule_records_histograms_that_read_back_equal_after_a_kill(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    settings = ("--native-histograms", "keep", "--rules", str(rules), "--rules-grace-s", "1")
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), *settings) as role:
        WAYS["remote write"](role, BEFORE, int(time.time() * 1000))
        times: list[int] = []

        def recorded() -> bool:
            found = query(role, "recorded[1m]", int(time.time() * 1000) + 1000)
            times[:] = [round(at * 1000) for one in found for at, _ in one["histograms"]]
            return len(times) > 2

        wait_until(recorded)
        role.kill()
        role.start()
        for at_ms in times[:3]:
            (one,), (other,) = query(role, "recorded", at_ms), query(role, "sum(lat)", at_ms)
            assert one["histogram"] == other["histogram"]
        assert role.metrics()["tsdb_ruler_refused_samples_total"] == 0
