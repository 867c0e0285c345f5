"""docs/alerting.md: vmalert and Prometheus run its configuration and rules over a process behind TLS and a token."""

from __future__ import annotations

import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.api.secured import TOKEN, SecuredServer, secured_standalone
from support.deploy_files import ROOT
from support.documents import blocks
from support.rules.prometheus_rules import prometheus_rules
from support.rules.vmalert import Notifier, vmalert
from support.senders.go_senders import VMALERT, built
from support.senders.prometheus import binary
from support.servers.logs import wait_until
from tsdb.client import ClientTls, WriteBatch, connect

PAGE = {block.section: block.text for block in blocks(ROOT / "docs/alerting.md")}
RECORD, ALERT = yaml.safe_load(PAGE["Rules"])["groups"][0]["rules"]
FIRING = f'ALERTS{{alertname="{ALERT["alert"]}", alertstate="firing"}}'
LOW, ENOUGH = "host-low:9100", "host-enough:9100"
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured_standalone(tmp_path_factory.mktemp("alerting")) as made:
        yield made


@pytest.fixture
def job(server: SecuredServer) -> str:
    """Label job of two hosts with the last minute of CPU time and memory; one is low on memory."""
    job = f"node-{uuid.uuid4().hex[:8]}"
    now_ms = time.time_ns() // 1_000_000
    times = [now_ms - back_ms for back_ms in range(60_000, -1, -5_000)]
    batch = WriteBatch()
    for instance, available in ((LOW, 5.0), (ENOUGH, 50.0)):
        target = {"job": job, "instance": instance}
        for name, value in (("MemAvailable", available), ("MemTotal", 100.0)):
            batch.add({"__name__": f"node_memory_{name}_bytes", **target}, times, [value] * len(times))
        for cpu in ("0", "1"):
            labels = {"__name__": "node_cpu_seconds_total", "mode": "idle", "cpu": cpu, **target}
            batch.add(labels, times, [number * available / 20 for number in range(len(times))])
    tls = ClientTls(ca_file=server.folder / SecuredServer.CA_FILE)
    with connect(server.role.grpc, tls=tls, token=TOKEN) as client:
        client.write(batch)
    return job


def _moved(text: str, server: SecuredServer, notifier: Notifier, **others: str) -> str:
    """A text of the page, with the addresses and files of the test."""
    places = {
        "https://querier.example:7411": server.url,
        "https://gateway.example:7411": server.url,
        "alertmanager.example:9093": notifier.address,
        **others,
    }
    for theirs, ours in places.items():
        assert theirs in text, theirs
        text = text.replace(theirs, ours)
    return text


def _write_rules(folder: Path) -> None:
    """The rules of the page, with shorter times."""
    text = PAGE["Rules"].replace("interval: 15s", "interval: 1s").replace("for: 5m", "for: 2s")
    assert text.count(": 1s") == text.count(": 2s") == 1
    (folder / "rules.yaml").write_text(text)


def _vector(server: SecuredServer, query: str, job: str, **parameters: Any) -> list[dict[str, Any]]:
    """Series of an instant query that have this label."""
    found = server.ask("query", query=query, **parameters)["result"]
    return [one for one in found if one["metric"]["job"] == job]


def _wait_for_results(server: SecuredServer, notifier: Notifier, job: str) -> None:
    """Wait until the alert has fired, and both results are in the store."""
    wait_until(lambda: any(one["labels"]["job"] == job for one in notifier.alerts()), WITHIN_S)
    wait_until(lambda: bool(_vector(server, FIRING, job)), WITHIN_S)
    wait_until(lambda: len(_vector(server, RECORD["record"], job)) == 2, WITHIN_S)


def _check_results(server: SecuredServer, notifier: Notifier, job: str) -> None:
    sent = next(one for one in notifier.alerts() if one["labels"]["job"] == job)
    assert (sent["labels"]["alertname"], sent["labels"]["instance"]) == (ALERT["alert"], LOW)
    assert sent["annotations"] == {"summary": f"{LOW} has 0.05 of its memory available."}
    (stored,) = _vector(server, FIRING, job)
    assert (stored["metric"]["severity"], stored["metric"]["instance"]) == ("page", LOW)
    rows = _vector(server, f"{RECORD['record']}[1m]", job)
    assert {row["metric"]["instance"] for row in rows} == {LOW, ENOUGH}
    for row in rows:
        for at_s, value in row["values"]:
            now = {
                one["metric"]["instance"]: one["value"][1] for one in _vector(server, RECORD["expr"], job, time=at_s)
            }
            assert float(value) == pytest.approx(float(now[row["metric"]["instance"]]), rel=1e-12)


@pytest.mark.soak  # The first run builds vmalert: a minute of both cores.
@pytest.mark.timeout(1800)
def test_vmalert_fires_and_writes_its_results_back(server: SecuredServer, job: str, tmp_path: Path) -> None:
    _write_rules(tmp_path)
    with Notifier() as notifier:
        files = {"/etc/vmalert/rules.yaml": str(tmp_path / "rules.yaml"), "/etc/vmalert": str(server.folder)}
        name, *flags = shlex.split(_moved(PAGE["vmalert"].replace("\\\n", " "), server, notifier, **files))
        assert name == "vmalert"
        with vmalert(built(VMALERT), tmp_path, [*flags, "-remoteWrite.flushInterval=200ms"]):
            _wait_for_results(server, notifier, job)
        _check_results(server, notifier, job)


def test_prometheus_fires_over_remote_read_and_writes_its_results_back(
    server: SecuredServer, job: str, tmp_path: Path
) -> None:
    _write_rules(tmp_path)
    with Notifier() as notifier:
        text = _moved(PAGE["Prometheus"], server, notifier, **{"/etc/prometheus": str(server.folder), "15s": "1s"})
        (tmp_path / "prometheus.yml").write_text(text)
        with prometheus_rules(tmp_path):
            _wait_for_results(server, notifier, job)
        _check_results(server, notifier, job)


def test_promtool_takes_the_configuration_and_the_rules_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(PAGE["Prometheus"])
    (tmp_path / "rules.yaml").write_text(PAGE["Rules"])
    # The files of token and CA are the reader's.
    for command in (("check", "config", "--syntax-only", "prometheus.yml"), ("check", "rules", "rules.yaml")):
        done = subprocess.run(
            [binary("promtool"), *command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
