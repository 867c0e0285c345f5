"""Telegraf as a sender: it measures its host, sends lines to a gateway, and writes the same lines to a file."""

from __future__ import annotations

import signal
import struct
import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from support.oracles.line_twin import TwinRules, decode
from support.servers.logs import wait_until
from tsdb.client import Client
from tsdb.model.labels import canonical_labels, parse_labels

STOP_WITHIN_S = 30.0
SHOWN_WITHIN_S = 60.0

AGENT = """\
[agent]
  interval = "200ms"
  flush_interval = "500ms"
  metric_batch_size = 50
  metric_buffer_limit = 100000
[global_tags]
  job = "{job}"
[[inputs.cpu]]
[[inputs.mem]]
[[inputs.internal]]
[[outputs.file]]
  files = ["{lines}"]
"""
OUTPUTS = {
    "influxdb_v2": """\
[[outputs.influxdb_v2]]
  urls = ["http://{gateway}"]
  token = "{token}"
  organization = "any"
  bucket = "any"
""",
    "influxdb": """\
[[outputs.influxdb]]
  urls = ["http://{gateway}"]
  username = "any"
  password = "{token}"
  skip_database_creation = true
  content_encoding = "gzip"
""",
    "http": """\
[[outputs.http]]
  url = "http://{gateway}/write"
  data_format = "influx"
  headers = {{"Authorization" = "Token {token}"}}
""",
}


class Telegraf:
    """A process with one output to the gateway. A context manager: leaving it lets Telegraf flush and end."""

    def __init__(self, program: Path, scratch: Path, gateway: str, output: str, token: str) -> None:
        self._job = f"telegraf-{uuid.uuid4().hex[:8]}"
        self.lines = scratch / f"{self._job}.lines"
        self._log = scratch / f"{self._job}.log"
        config = scratch / f"{self._job}.conf"
        agent = AGENT.format(job=self._job, lines=self.lines)
        config.write_text(agent + OUTPUTS[output].format(gateway=gateway, token=token))
        self._command = [str(program), "--config", str(config)]
        self._begin_ms = time.time_ns() // 1_000_000

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        assert error is not None or code == 0, self._log.read_text()[-4000:]

    def wait_for_lines(self, count: int) -> None:
        """Wait until it has measured `count` more lines."""
        goal = self._count() + count
        wait_until(lambda: self._count() >= goal, 60.0)

    def judge(self, reader: Client) -> int:
        """Once ended: a store shows the samples of its lines bit for bit, and no other. Returns their number."""
        twin = decode(self.lines.read_bytes(), TwinRules())
        assert not twin.refused
        want = {(canonical_labels(parse_labels(row[1])), row[2]): struct.pack("<d", row[3]) for row in twin.rows}
        wait_until(lambda: len(self._read(reader)) >= len(want), SHOWN_WITHIN_S)
        got = self._read(reader)
        lost = [key for key in want if got.get(key) != want[key]]
        assert not lost, f"{len(lost)} of {len(want)} samples are missing or differ, such as {lost[:3]}"
        assert got.keys() == want.keys()
        return len(want)

    def _count(self) -> int:
        return self.lines.read_bytes().count(b"\n") if self.lines.exists() else 0

    def _read(self, reader: Client) -> dict[tuple[bytes, int], bytes]:
        answer = reader.select(f'{{job="{self._job}"}}', self._begin_ms - 1000, time.time_ns() // 1_000_000 + 1000)
        return {
            (series.canonical, ts_ms): struct.pack("<d", value)
            for series in answer.series
            for ts_ms, value in zip(series.ts_ms.tolist(), series.values.tolist(), strict=True)
        }
