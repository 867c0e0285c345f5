"""A real Alertmanager gets firing and resolved alerts, notifies of each once, and after a kill has what holds then."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stack.ports import Ports
from support.senders.post_server import PostServer
from support.senders.prometheus import binary
from support.servers.logs import wait_until
from tsdb.model.clock import SystemClock
from tsdb.rules.files import parse_rules
from tsdb.rules.groups import RuleSurroundings, VectorSample, evaluate_group, new_state
from tsdb.rules.notifier import AlertmanagerAccess, Notifier
from tsdb.rules.schedule import ScheduledGroup

WITHIN_S = 60.0
RULES = b"""
groups:
- name: g
  interval: 1s
  rules:
  - {alert: High, expr: x > 5, labels: {severity: page}, annotations: {summary: "{{ $labels.job }} has {{ $value }}"}}
"""
CONFIG = """
route: {{receiver: here, group_by: [job], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: here, webhook_configs: [{{url: 'http://{address}/', send_resolved: true}}]}}]
"""


class Webhook(PostServer):
    """Keeps the notifications of an Alertmanager: job and status of each alert."""

    def __init__(self) -> None:
        super().__init__(self._take, 200)
        self._lock = threading.Lock()  # Guards _seen.
        self._seen: list[tuple[str, str]] = []

    def _take(self, body: bytes) -> None:
        with self._lock:
            self._seen += [(alert["labels"]["job"], alert["status"]) for alert in json.loads(body)["alerts"]]

    def seen(self) -> list[tuple[str, str]]:
        with self._lock:
            return list(self._seen)


class Alertmanager:
    """A process of Debian's Alertmanager, alone and without state."""

    def __init__(self, scratch: Path, port: int, webhook: Webhook) -> None:
        config = scratch / "alertmanager.yaml"
        config.write_text(CONFIG.format(address=webhook.address))
        self.url = f"http://127.0.0.1:{port}"
        self._command = [
            *(binary("prometheus-alertmanager"), f"--config.file={config}", "--cluster.listen-address="),
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._scratch = scratch
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._starts += 1
        folder = self._scratch / f"state-{self._starts}"
        with (self._scratch / "alertmanager.log").open("ab") as output:
            self._process = subprocess.Popen([*self._command, f"--storage.path={folder}"], stdout=output, stderr=output)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def active(self) -> dict[str, dict[str, Any]]:
        """Its active alerts by the label job; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/alerts?active=true", timeout=5) as answer:
                return {alert["labels"]["job"]: alert for alert in json.load(answer)}
        except OSError:
            return {}


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with Webhook() as found:
        yield found


@contextmanager
def alertmanager(scratch: Path, webhook: Webhook) -> Iterator[Alertmanager]:
    with Ports(1) as ports:
        found = Alertmanager(scratch, ports.numbers[0], webhook)
        found.start()
        try:
            yield found
        finally:
            found.kill()


class Group:
    """A group with one alerting rule, evaluated now."""

    def __init__(self, notifier: Notifier) -> None:
        (group,) = parse_rules(RULES, "f.yaml").groups
        self.one = ScheduledGroup(group, new_state(group))
        self._notifier = notifier

    def evaluate(self, *jobs: str) -> None:
        """The condition holds for these jobs."""

        def query(text: str, at_ms: int) -> list[VectorSample]:
            return [VectorSample({"__name__": "x", "job": job}, 9.0) for job in jobs]

        def ignore(samples: object) -> None:
            """Series are of no interest here."""

        now_ms = SystemClock().now_ms()
        self.one.state = evaluate_group(self.one.group, self.one.state, now_ms, 0, RuleSurroundings(query, ignore))
        self._notifier.update(self.one)


def test_an_alertmanager_has_what_fires_is_told_the_end_once_and_is_filled_after_a_kill(
    tmp_path: Path, webhook: Webhook
) -> None:
    with alertmanager(tmp_path, webhook) as server:
        wait_until(lambda: _is_up(server), WITHIN_S)
        notifier = Notifier([AlertmanagerAccess(server.url)], "http://rules", SystemClock())
        notifier.start()
        try:
            group = Group(notifier)
            group.evaluate("a", "b")
            wait_until(lambda: server.active().keys() == {"a", "b"}, WITHIN_S)
            first = server.active()["a"]
            assert first["labels"] == {"alertname": "High", "job": "a", "severity": "page"}
            assert first["annotations"] == {"summary": "a has 9"}
            assert first["generatorURL"].startswith("http://rules/graph?g0.expr=x")
            group.evaluate("b")
            wait_until(lambda: server.active().keys() == {"b"}, WITHIN_S)
            wait_until(lambda: ("a", "resolved") in webhook.seen(), WITHIN_S)
            assert sorted(webhook.seen()) == [("a", "firing"), ("a", "resolved"), ("b", "firing")]
            server.kill()
            group.evaluate("c")  # b ends and c begins while it is away.
            server.start()
            wait_until(lambda: server.active().keys() == {"c"}, WITHIN_S)
            wait_until(lambda: ("c", "firing") in webhook.seen(), WITHIN_S)
            assert webhook.seen().count(("c", "firing")) == 1
        finally:
            notifier.close()
            assert notifier.join(WITHIN_S)


def _is_up(server: Alertmanager) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
