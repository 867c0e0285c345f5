"""Relays as senders: programs that take samples from a test and send them on, each through its queue."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from stack.ports import Ports
from support.servers.logs import wait_until
from tsdb.client import Client
from tsdb.model.labels import canonical_labels

METRIC = "relay_sample"
INSTANCES = 5
SHOWN_WITHIN_S = 120.0
STOP_WITHIN_S = 60.0

Sample = tuple[int, int, float]  # (instance, ts_ms, value)

# The timeout of prometheusremotewrite is for all tries of a request together; afterwards it drops the request.
COLLECTOR_CONFIG = """\
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  prometheusremotewrite:
    timeout: 10m
    endpoint: http://{gateway}/api/v1/write
    headers: {{Authorization: "Bearer {token}"}}
    retry_on_failure: {{initial_interval: 200ms, max_interval: 1s, max_elapsed_time: 0}}
  otlphttp:
    endpoint: http://{gateway}
    headers: {{Authorization: "Bearer {token}"}}
    retry_on_failure: {{initial_interval: 200ms, max_interval: 1s, max_elapsed_time: 0}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [{exporter}]}}}}
"""


class Relay:
    """A process. A context manager: leaving it waits until the store has all samples, and ends the relay.

    command: makes the command line from the relay's port. body: makes (path, content type, body) of samples.
    """

    def __init__(
        self,
        scratch: Path,
        command: Callable[[int], Sequence[str]],
        body: Callable[[str, Sequence[Sample]], tuple[str, str, bytes]],
    ) -> None:
        self._ports = Ports(1)
        self._port = self._ports.numbers[0]
        self._job = f"relay-{uuid.uuid4().hex[:8]}"
        self._log = scratch / f"{self._job}.log"
        self._command, self._body = command(self._port), body
        self._base_ms = time.time_ns() // 1_000_000
        self._sent: list[Sample] = []

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(lambda: self._push([]), 60.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._ports.close()

    def send(self, requests: int) -> None:
        """Give the relay requests of INSTANCES samples each. requests: their number."""
        for _ in range(requests):
            number = len(self._sent)
            ts_ms = self._base_ms - number
            new = [(one, ts_ms, (number + one) / 7) for one in range(INSTANCES)]
            wait_until(lambda new=new: self._push(new), 30.0)  # type: ignore[misc]  # It takes a closure.
            self._sent += new

    def judge(self, reader: Client) -> int:
        """A store shows each sample bit for bit, and no other. Returns their number."""
        want = {(self._labels(one), ts_ms): struct.pack("<d", value) for one, ts_ms, value in self._sent}
        try:
            wait_until(lambda: len(self._read(reader)) >= len(want), SHOWN_WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self._log.read_text()[-3000:]}") from late
        assert self._read(reader) == want
        return len(want)

    def _labels(self, instance: int) -> bytes:
        return canonical_labels({"__name__": METRIC, "job": self._job, "instance": f"i{instance}"})

    def _read(self, reader: Client) -> dict[tuple[bytes, int], bytes]:
        answer = reader.select(f'{METRIC}{{job="{self._job}"}}', self._base_ms - 86_400_000, self._base_ms + 1)
        return {
            (series.canonical, ts_ms): struct.pack("<d", value)
            for series in answer.series
            for ts_ms, value in zip(series.ts_ms.tolist(), series.values.tolist(), strict=True)
        }

    def _push(self, samples: Sequence[Sample]) -> bool:
        path, content_type, body = self._body(self._job, samples)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}", body, {"content-type": content_type}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=10):
                return True
        except urllib.error.HTTPError as refused:
            refused.close()
            return False
        except OSError:
            return False


def vmagent(program: Path, scratch: Path, gateway: str, token: str) -> Relay:
    """vmagent takes text of Prometheus with timestamps, and sends remote write."""

    def command(port: int) -> Sequence[str]:
        return (
            str(program),
            f"-httpListenAddr=127.0.0.1:{port}",
            f"-remoteWrite.url=http://{gateway}/api/v1/write",
            f"-remoteWrite.bearerToken={token}",
            f"-remoteWrite.tmpDataPath={scratch / uuid.uuid4().hex}",
            "-remoteWrite.flushInterval=100ms",
            "-remoteWrite.retryMinInterval=200ms",
            "-remoteWrite.retryMaxTime=1s",
        )

    def body(job: str, samples: Sequence[Sample]) -> tuple[str, str, bytes]:
        lines = (f'{METRIC}{{job="{job}",instance="i{one}"}} {value!r} {ts_ms}\n' for one, ts_ms, value in samples)
        return "/api/v1/import/prometheus", "text/plain", "".join(lines).encode()

    return Relay(scratch, command, body)


def collector(program: Path, scratch: Path, gateway: str, token: str, exporter: str) -> Relay:
    """The OpenTelemetry Collector takes OTLP and sends what `exporter` sends."""

    def command(port: int) -> Sequence[str]:
        config = scratch / f"collector-{port}.yaml"
        config.write_text(COLLECTOR_CONFIG.format(port=port, gateway=gateway, token=token, exporter=exporter))
        return (str(program), "--config", str(config))

    def body(job: str, samples: Sequence[Sample]) -> tuple[str, str, bytes]:
        resources = [
            {
                "resource": {"attributes": [_text("service.name", job), _text("service.instance.id", f"i{one}")]},
                "scopeMetrics": [
                    {
                        "metrics": [
                            {
                                "name": METRIC,
                                "gauge": {"dataPoints": [{"timeUnixNano": f"{ts_ms}000000", "asDouble": value}]},
                            }
                        ]
                    }
                ],
            }
            for one, ts_ms, value in samples
        ]
        return "/v1/metrics", "application/json", json.dumps({"resourceMetrics": resources}).encode()

    return Relay(scratch, command, body)


def _text(key: str, value: str) -> dict[str, object]:
    return {"key": key, "value": {"stringValue": value}}
