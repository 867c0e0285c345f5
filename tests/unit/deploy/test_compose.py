"""deploy/compose.yaml: a profile runs one engine of the chunk stage, and what services name is there."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from support.deploy_files import DEPLOY, compose
from support.grafana.dashboards import data_source
from tsdb.config import ROLES

PROVISIONING = DEPLOY / "grafana/provisioning"
SERVICES: dict[str, Any] = compose()["services"]
ENGINES = {"small": "chunker", "spark": "spark"}


@pytest.mark.parametrize("profile", ENGINES)
def test_a_profile_runs_one_engine_of_the_chunk_stage(profile: str) -> None:
    running = {name for name, service in SERVICES.items() if profile in service.get("profiles", [profile])}
    assert running & set(ENGINES.values()) == {ENGINES[profile]}
    assert {"gateway", "store", "loader", "querier"} <= running


def test_the_default_profile_is_the_small_one() -> None:
    # Without a profile no engine would run: windows would never close.
    assert re.findall(r"^COMPOSE_PROFILES=(.*)$", (DEPLOY / ".env").read_text(), re.MULTILINE) == ["small"]


@pytest.mark.parametrize("profile", ENGINES)
def test_prometheus_scrapes_services_of_every_profile(profile: str) -> None:
    running = [name for name, service in SERVICES.items() if profile in service.get("profiles", [profile])]
    aliases = [SERVICES[name].get("networks", {"default": {"aliases": []}})["default"]["aliases"] for name in running]
    (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    scraped = {target.partition(":")[0] for one in job["static_configs"] for target in one["targets"]}
    assert scraped <= {*running, *(name for names in aliases for name in names)}


def test_services_wait_only_for_services_of_every_profile() -> None:
    for name, service in SERVICES.items():
        for other in service.get("depends_on", {}):
            assert "profiles" not in SERVICES[other], name


def test_named_volumes_are_declared() -> None:
    for name, service in SERVICES.items():
        sources = {volume.partition(":")[0] for volume in service.get("volumes", [])}
        assert {source for source in sources if not source.startswith(".")} <= compose().get("volumes", {}).keys(), name


def test_grafana_has_the_files_and_variables_that_its_provisioning_names() -> None:
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards/kafka-tsdb.yaml").read_text())["providers"]
    assert mounts["./grafana"] == provider["options"]["path"]
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    source = data_source(**SERVICES["grafana"]["environment"])
    port = str(ROLES["querier"].model_fields["http"].default).rpartition(":")[2]
    assert source["url"] == f"http://querier:{port}"


def test_images_of_others_have_versions() -> None:
    theirs = [service["image"] for service in SERVICES.values() if not service["image"].startswith("kafka-tsdb")]
    assert [image for image in theirs if not re.search(r":v?\d+\.\d+", image)] == []
