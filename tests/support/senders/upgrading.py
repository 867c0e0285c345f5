"""Programs that offer HTTP/2 with each request over plain HTTP: Java's HttpClient by default, and `curl --http2`."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from support.servers.logs import wait_until

PROGRAM = Path(__file__).with_name("JavaWriter.java")
START_S = 120.0  # Compiling the program on a busy machine.
SHOWN_WITHIN_S = 60.0


def run_java(http: str, run: str, seconds: int, threads: int) -> dict[str, int]:
    """Let the Java program write. Returns the samples answered with success, by thread."""
    command = ["java", str(PROGRAM), f"http://{http}", run, str(seconds), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + START_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return {thread: int(samples) for thread, samples in map(str.split, done.stdout.splitlines())}


def curl(http: str, path: str, *flags: str, body: bytes = b"") -> tuple[int, bytes]:
    """The answer to a POST of curl that offers HTTP/2: its status and body."""
    command = ["curl", "--http2", "-sS", "-w", "\n%{http_code}", "--data-binary", "@-", *flags, f"http://{http}{path}"]
    done = subprocess.run(command, input=body, capture_output=True, timeout=60.0, check=False)
    assert done.returncode == 0, done.stderr
    text, _, status = done.stdout.rpartition(b"\n")
    return int(status), text


def curl_query(http: str, query: str, *more: str) -> Any:
    """The result of a query that curl sends as a form."""
    fields = urlencode({"query": query}) + "".join(f"&{field}" for field in more)
    status, text = curl(http, "/api/v1/query", body=fields.encode())
    assert status == 200, text
    return json.loads(text)["data"]["result"]


def wait_for_counts(http: str, selector: str, by: str, expected: dict[str, int]) -> None:
    """Wait until the samples of a selector, by a label, are those that were acknowledged."""
    query = urlencode({"query": f"sum by ({by}) (count_over_time({selector}[1d]))"})

    def counts() -> dict[str, int]:
        with urllib.request.urlopen(f"http://{http}/api/v1/query?{query}", timeout=60) as answer:
            rows = json.load(answer)["data"]["result"]
        return {row["metric"][by]: int(row["value"][1]) for row in rows}

    wait_until(lambda: counts() == expected, SHOWN_WITHIN_S)


def write_lines(http: str, run: str, seconds: float, sizes: Sequence[int]) -> int:
    """Let curl write bodies of `sizes` lines in turn, each with a query behind it. Returns the acknowledged samples."""
    began_ms, samples, end_at = time.time_ns() // 1_000_000, 0, time.monotonic() + seconds
    while True:
        for size in sizes:
            times = range(began_ms - samples - size, began_ms - samples)
            body = "".join(f"curl,run={run} value=1 {at_ms}\n" for at_ms in times)
            status, text = curl(http, "/write?precision=ms", body=body.encode())
            assert (status, text) == (204, b"")
            samples += size
            assert curl_query(http, f"1 + {samples}", "time=")[1] == str(1 + samples)
        if time.monotonic() >= end_at:
            return samples
