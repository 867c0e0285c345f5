"""Programs that offer HTTP/2 by `Upgrade` lose nothing: each success is a stored sample, each form is read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.senders.remote_write import request_1, snappy
from support.senders.upgrading import curl, curl_query, run_java, wait_for_counts, write_lines
from support.servers.processes import Role

SOAK_S = 600

pytestmark = pytest.mark.timeout(900)  # The start of a process loads or compiles all kernels.


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    scratch = tmp_path_factory.mktemp("upgrading")
    with Role(scratch, "standalone", "--data-dir", str(scratch / "data")) as role:
        yield role.http


def test_samples_of_a_java_program_are_all_stored(http: str) -> None:
    written = run_java(http, "short", 3, 2)
    assert min(written.values()) > 3_000
    wait_for_counts(http, 'java_value{run="short"}', "thread", written)


def test_samples_of_curl_are_all_stored(http: str) -> None:
    # The last body is over 1 MiB: curl waits for 100 Continue.
    written = write_lines(http, "short", 0.0, [1, 1_000, 30_000])
    wait_for_counts(http, 'curl_value{run="short"}', "run", {"short": written})


def test_each_protocol_reads_the_body_of_an_offer(http: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    attributes = [{"key": "by", "value": {"stringValue": "otlp"}}]
    point = {"timeUnixNano": str(now_ms * 1_000_000), "asDouble": 3, "attributes": attributes}
    otlp = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "each", "gauge": {"dataPoints": [point]}}]}]}]}
    labels = {"__name__": "each", "by": "remote"}
    bodies = {
        "/api/v1/write": (
            snappy(request_1([(labels, [(now_ms, 1.0)])])),
            ("-H", "content-type: application/x-protobuf", "-H", "content-encoding: snappy"),
        ),
        "/api/v2/write?bucket=b": (b"each,by=lines value=2", ()),
        "/v1/metrics": (json.dumps(otlp).encode(), ("-H", "content-type: application/json")),
    }
    for path, (body, flags) in bodies.items():
        status, text = curl(http, path, *flags, body=body)
        assert status in (200, 204), text
    wait_for_counts(http, '{__name__=~"each|each_value"}', "by", {"remote": 1, "lines": 1, "otlp": 1})


def test_filters_of_a_form_are_not_ignored(http: str) -> None:
    assert curl(http, "/write", body=b"kept,a=1 value=1\nkept,a=2 value=1")[0] == 204
    wait_for_counts(http, "kept_value", "a", {"1": 1, "2": 1})
    status, text = curl(http, "//api/v1/series", body=b'match[]=kept_value{a="2"}')
    assert (status, [row["a"] for row in json.loads(text)["data"]]) == (200, ["2"])
    assert curl_query(http, "kept_value", "time=1") == []


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + 900)
def test_ten_minutes_of_java_and_curl_lose_nothing(http: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        by_java = pool.submit(run_java, http, "soak", SOAK_S, 4)
        by_curl = pool.submit(write_lines, http, "soak", SOAK_S, [1, 10, 3_000])
        threads, lines = by_java.result(), by_curl.result()
    print(f"{sum(threads.values())} samples by Java, {lines} by curl")
    wait_for_counts(http, 'java_value{run="soak"}', "thread", threads)
    wait_for_counts(http, 'curl_value{run="soak"}', "run", {"soak": lines})
