"""A standalone process with rules: every recorded sample is the value of its expression at its time, none is missing,
also over a kill, late writes and a bad change of the file."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from support.rules.vmalert import Notifier
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import TsdbError, WriteBatch, connect

WITHIN_S = 120.0
GROUP = 'tsdb_rule_group_evaluated{{rule_group="{file};{name}"}}'
RULES = """
groups:
- name: reads
  interval: 1s
  rules: [{record: "twice", expr: "2 * sum_x"}]
- name: of_a
  interval: 1s
  rules: [{record: "a_x", expr: 'sum by (job) (x{job="a",instance=""})'}]
- name: base
  interval: 1s
  rules:
  - {record: "sum_x", expr: sum by (job) (x)}
  - {record: "sum_sum_x", expr: "sum by (job) (sum_x) + 1"}
  - {alert: High, expr: sum_x > 2, for: 2s, labels: {severity: page}, annotations: {s: "{{ $labels.job }}"}}
"""

pytestmark = pytest.mark.timeout(900)


class Api:
    """The HTTP API of a role."""

    def __init__(self, role: Role) -> None:
        self._role = role

    def get(self, path: str, **parameters: Any) -> Any:
        url = f"http://{self._role.http}/api/v1/{path}?{urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def page(self, name: str) -> str:
        """The HTML of a page about the system."""
        with urllib.request.urlopen(f"http://{self._role.http}/ui/{name}", timeout=30) as answer:
            return str(answer.read().decode())

    def samples(self, selector: str, last: str = "10m") -> dict[str, list[tuple[int, float]]]:
        """Samples in ms by the labels of their series."""
        found = self.get("query", query=f"{selector}[{last}]")["result"]
        return {
            json.dumps(one["metric"], sort_keys=True): [(round(at * 1000), float(value)) for at, value in one["values"]]
            for one in found
        }

    def values(self, expression: str, times_ms: list[int]) -> dict[int, dict[str, float]]:
        """The value of an expression at each time, by the label job."""
        return {
            at_ms: {
                one["metric"].get("job", ""): float(one["value"][1])
                for one in self.get("query", query=expression, time=at_ms / 1000)["result"]
            }
            for at_ms in times_ms
        }

    def evaluated(self, group: str) -> list[int]:
        found = self.samples(group)
        return [at_ms for rows in found.values() for at_ms, _ in rows]


@contextmanager
def written(role: Role) -> Iterator[None]:
    """Samples of two jobs, each some hundred ms late, for the duration of the block; again where a write fails. In four
    seconds of eight all are above 2, so that alerts fire and end."""
    stop = threading.Event()

    def write() -> None:
        with connect(role.grpc) as client:
            number = 0
            while not stop.wait(0.1):
                number += 1
                batch = WriteBatch()
                late_ms = time.time_ns() // 1_000_000 - 300 * (number % 3)
                level = 3 * (late_ms // 4000 % 2) + number // 3 % 3
                for job in ("a", "b"):
                    batch.add({"__name__": "x", "job": job}, late_ms, float(level + (job == "a")))
                try:
                    client.write(batch)
                except TsdbError:
                    continue  # The process is down for a moment.

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_recorded_samples_are_exact_and_none_is_missing_over_a_kill(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    settings = ("--data-dir", str(tmp_path / "data"), "--rules", str(rules), "--rules-grace-s", "2")
    group = GROUP.format(file=rules, name="base")
    with Notifier() as notifier, Role(tmp_path, "standalone", *settings, *_alertmanagers(notifier)) as role:
        api = Api(role)
        with written(role):
            wait_until(lambda: len(api.evaluated(group)) > 8, WITHIN_S)
            role.kill()
            role.start()
            replaced = tmp_path / "replaced.yaml"
            replaced.write_text(RULES + "bad\n")
            replaced.replace(rules)  # A file written in place may be read while it is still empty.
            wait_until(lambda: role.metrics()["tsdb_ruler_bad_files_total"] == 1, WITHIN_S)
            before = len(api.evaluated(group))
            wait_until(lambda: len(api.evaluated(group)) > before + 8, WITHIN_S)
        times = api.evaluated(group)
        assert [after - at for at, after in pairwise(times)] == [1000] * (len(times) - 1)
        for name in ("reads", "of_a"):
            last = partial(api.evaluated, GROUP.format(file=rules, name=name))
            wait_until(lambda last=last: last()[-1] >= times[-1], WITHIN_S)  # type: ignore[misc]
        _check(api, times)
        wait_until(lambda: {one["labels"]["job"] for one in notifier.alerts()} == {"a", "b"}, WITHIN_S)
        ((name, severity),) = {(one["labels"]["alertname"], one["labels"]["severity"]) for one in notifier.alerts()}
        assert (name, severity) == ("High", "page")
        groups = api.get("rules")["groups"]
        assert [(one["name"], len(one["partitions"] or ())) for one in groups] == [
            ("base", 0),
            ("of_a", 1),
            ("reads", 0),
        ]
        assert {rule["health"] for one in groups for rule in one["rules"]} == {"ok"}
        page = api.page("rules")
        assert [name for name in ("High", "sum_sum_x", "twice", str(rules)) if name not in page] == []
        assert "failed" not in page
        assert role.terminate_within(25.0) == 0


RESTARTED = """
groups:
- name: slow
  interval: 5s
  rules:
  - {alert: Waits, expr: y > 0, for: 1h}
  - {alert: Fires, expr: y > 0, for: 5s, annotations: {v: "{{ $value }}"}}
  - {alert: Kept, expr: 'y > 0 unless on() z', keep_firing_for: 1h}
"""
STATES = {"Waits": "pending", "Fires": "firing", "Kept": "firing"}
MARGIN_S = 4.0  # A busy machine takes this for its reads and writes.


def test_alerts_are_as_before_within_one_interval_after_a_kill(tmp_path: Path) -> None:
    """Pending, firing and kept alerts: their states, and the times since which they are active and kept."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RESTARTED)
    settings = ("--data-dir", str(tmp_path / "data"), "--rules", str(rules), "--rules-grace-s", "1")
    group = GROUP.format(file=rules, name="slow")
    with Role(tmp_path, "standalone", *settings) as role:
        api = Api(role)

        def write(name: str) -> None:
            batch = WriteBatch()
            batch.add({"__name__": name, "job": "a"}, time.time_ns() // 1_000_000, 1.0)
            with connect(role.grpc) as client:
                client.write(batch)

        def alerts() -> dict[str, list[Any]]:
            fields = ("state", "activeAt", "value", "keepFiringSince", "annotations")
            found = api.get("alerts")["alerts"]
            return {one["labels"]["alertname"]: [one.get(name) for name in fields] for one in found}

        write("y")
        wait_until(lambda: {name: one[0] for name, one in alerts().items()} == STATES, WITHIN_S)
        write("z")
        wait_until(lambda: alerts()["Kept"][3] is not None, WITHIN_S)
        before = alerts()
        role.kill()
        role.start()
        began = time.monotonic()
        wait_until(lambda: alerts() == before, WITHIN_S)
        assert time.monotonic() - began < 5.0 + 1.0 + MARGIN_S
        last_ms = api.evaluated(group)[-1]
        wait_until(lambda: api.evaluated(group)[-1] > last_ms, WITHIN_S)
        assert alerts() == before
        # `activeAt` of each alert is the same at all times.
        states = api.samples("ALERTS_FOR_STATE")
        assert [len({value for _, value in rows}) for rows in states.values()] == [1, 1, 1]


def _alertmanagers(notifier: Notifier) -> tuple[str, str]:
    return "--rules-alertmanagers", f"http://{notifier.address}"


def _check(api: Api, times: list[int]) -> None:
    """Each recorded sample is the value of its expression at its time, and there is one for each value."""
    for name, expression in (
        ("sum_x", "sum by (job) (x)"),
        ("sum_sum_x", "sum by (job) (sum_x) + 1"),
        ("twice", "2 * sum_x"),
        ("a_x", 'sum_x{job="a"}'),
    ):
        expected = api.values(expression, times)
        recorded: dict[int, dict[str, float]] = {at_ms: {} for at_ms in times}
        for labels, rows in api.samples(name).items():
            for at_ms, value in rows:
                if at_ms in recorded:
                    recorded[at_ms][json.loads(labels)["job"]] = value
        assert recorded == expected, name
    # `for` is 2 s: an alert fires at a time exactly when the condition held at this time and the two before.
    above = {
        at_ms: {job for job, value in row.items() if value > 2} for at_ms, row in api.values("sum_x", times).items()
    }
    firing: dict[int, set[str]] = {at_ms: set() for at_ms in times}
    for labels, rows in api.samples('ALERTS{alertstate="firing"}').items():
        for at_ms, _ in rows:
            firing.setdefault(at_ms, set()).add(json.loads(labels)["job"])
    for at_ms in times[2:]:
        assert firing[at_ms] == above[at_ms] & above[at_ms - 1000] & above[at_ms - 2000], at_ms


def test_a_bad_rule_file_refuses_the_start(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("sum by (job) (x)", "sum by (job) (x"))
    with (
        pytest.raises(AssertionError, match="could not parse expression"),
        Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), "--rules", str(rules)),
    ):
        pass
