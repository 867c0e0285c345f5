"""Real senders that are built for minutes: all that they sent is read back exactly, also after kills of the gateway and
minutes without a log.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from stack.kafka import KafkaCluster
from support.documents import blocks
from support.drills.outages import GATEWAY_FLAGS, stop
from support.senders.go_senders import COLLECTOR, TELEGRAF, VMAGENT, built
from support.senders.relays import Relay, collector, vmagent
from support.senders.telegraf import OUTPUTS, Telegraf
from support.servers.deployments import Deployment, embedded, on_kafka
from support.shared_servers import SharedBroker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "senders.md"

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

TOKEN = "go-sender"
LINES = 100
REQUESTS = 100
AWAY_S = 60.0
RELAYS = ("vmagent", "prometheusremotewrite", "otlphttp")


@contextmanager
def gateway_of_own_broker(scratch: Path) -> Iterator[tuple[KafkaCluster, Deployment]]:
    """A broker that a test may stop, and a gateway and a store on it."""
    file = scratch / "tokens"
    file.write_text(f"{TOKEN}\n")
    flags = ("--token-file", str(file), *GATEWAY_FLAGS)
    with KafkaCluster() as broker, on_kafka(scratch, broker.bootstrap, gateway=flags) as deployment:
        yield broker, deployment


def away(broker: KafkaCluster, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Stop the broker for a minute at least."""
    mend = stop(broker)
    back_at = time.monotonic() + AWAY_S
    meanwhile()
    threading.Event().wait(max(0.0, back_at - time.monotonic()))
    mend()


def kill_under_telegraf(deployment: Deployment, scratch: Path, output: str) -> None:
    with Telegraf(built(TELEGRAF), scratch, deployment.gateway.http, output, TOKEN) as telegraf:
        telegraf.wait_for_lines(LINES)
        deployment.gateway.kill()
        threading.Event().wait(2.0)  # Long enough for some flushes of Telegraf without a gateway.
        deployment.gateway.start()
        telegraf.wait_for_lines(LINES)
    with deployment.reader() as reader:
        samples = telegraf.judge(reader)
    print(f"{output}: {samples} samples read back")


@pytest.mark.parametrize("output", OUTPUTS)
def test_what_telegraf_sent_to_standalone_outlives_a_kill(output: str, tmp_path: Path) -> None:
    with embedded(tmp_path) as deployment:
        kill_under_telegraf(deployment, tmp_path, output)


@pytest.mark.parametrize("output", OUTPUTS)
def test_what_telegraf_sent_to_a_gateway_on_kafka_outlives_a_kill(
    output: str, kafka: SharedBroker, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    with on_kafka(tmp_path, kafka.bootstrap, gateway=("--token-file", str(file))) as deployment:
        kill_under_telegraf(deployment, tmp_path, output)


def relay(name: str, scratch: Path, gateway: str) -> Relay:
    if name == "vmagent":
        return vmagent(built(VMAGENT), scratch, gateway, TOKEN)
    return collector(built(COLLECTOR), scratch, gateway, TOKEN, name)


def kill_under_relay(deployment: Deployment, scratch: Path, name: str) -> None:
    with relay(name, scratch, deployment.gateway.http) as one, deployment.reader() as reader:
        one.send(REQUESTS)
        deployment.gateway.kill()
        one.send(REQUESTS)  # The relay queues these samples.
        deployment.gateway.start()
        one.send(REQUESTS)
        samples = one.judge(reader)
    print(f"{name}: {samples} samples read back")


@pytest.mark.parametrize("output", OUTPUTS)
def test_what_telegraf_measured_while_the_log_was_away_for_a_minute_follows(output: str, tmp_path: Path) -> None:
    with gateway_of_own_broker(tmp_path) as (broker, deployment):
        with Telegraf(built(TELEGRAF), tmp_path, deployment.gateway.http, output, TOKEN) as telegraf:
            telegraf.wait_for_lines(LINES)
            away(broker)
            telegraf.wait_for_lines(LINES)
        deployment.store.wait_ready()
        with deployment.reader() as reader:
            samples = telegraf.judge(reader)
    print(f"{output}: {samples} samples read back")


@pytest.mark.parametrize("name", RELAYS)
def test_what_a_relay_took_while_the_log_was_away_for_a_minute_follows(name: str, tmp_path: Path) -> None:
    with (
        gateway_of_own_broker(tmp_path) as (broker, deployment),
        relay(name, tmp_path, deployment.gateway.http) as one,
        deployment.reader() as reader,
    ):
        one.send(REQUESTS)
        away(broker, meanwhile=lambda: one.send(REQUESTS))
        one.send(REQUESTS)
        deployment.store.wait_ready()
        samples = one.judge(reader)
    print(f"{name}: {samples} samples read back")


@pytest.mark.parametrize("name", RELAYS)
def test_what_a_relay_sent_to_standalone_outlives_a_kill(name: str, tmp_path: Path) -> None:
    with embedded(tmp_path) as deployment:
        kill_under_relay(deployment, tmp_path, name)


@pytest.mark.parametrize("name", RELAYS)
def test_what_a_relay_sent_to_a_gateway_on_kafka_outlives_a_kill(
    name: str, kafka: SharedBroker, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    with on_kafka(tmp_path, kafka.bootstrap, gateway=("--token-file", str(file))) as deployment:
        kill_under_relay(deployment, tmp_path, name)


@pytest.fixture
def snippets(tmp_path: Path) -> dict[str, str]:
    """Snippets of the page by section; their paths lead into a folder with a CA, a token and a configuration."""
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "tsdb-ca.pem"))
    (tmp_path / "tsdb.token").write_text(TOKEN)
    (tmp_path / "scrape.yml").write_text("scrape_configs: []\n")
    found = {block.section: block.text for block in reversed([*blocks(PAGE)])}
    return {section: _moved(text, tmp_path) for section, text in found.items()}


def _moved(text: str, folder: Path) -> str:
    for place in ("/etc/vmagent", "/etc/telegraf", "/etc/otelcol", "/var/lib/vmagent", "/var/lib/otelcol"):
        text = text.replace(place, str(folder))
    return text


def test_telegraf_takes_the_configuration_on_the_page(snippets: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "telegraf.conf"
    config.write_text(snippets["Telegraf"])
    run(str(built(TELEGRAF)), "config", "check", "--config", str(config))


def test_the_collector_takes_the_configuration_on_the_page(snippets: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "collector.yaml"
    config.write_text(snippets["OpenTelemetry Collector"])
    run(str(built(COLLECTOR)), "validate", "--config", str(config))


def test_vmagent_takes_the_flags_on_the_page(snippets: dict[str, str]) -> None:
    name, *flags = shlex.split(snippets["vmagent"].replace("\\\n", " "))
    assert name == "vmagent"
    run(str(built(VMAGENT)), *flags, "-dryRun")


def run(*command: str) -> None:
    environment = {**os.environ, "TSDB_TOKEN": TOKEN}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
