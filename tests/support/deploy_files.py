"""The manifests in deploy/: parsed, and the command lines in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PLAIN = ("compose.yaml", "alerts.yaml")  # YAML that is no Kubernetes object.


@dataclass(frozen=True)
class Manifest:
    """One object of a file."""

    file: str
    value: dict[str, Any]

    @property
    def kind(self) -> str:
        return f"{self.value['apiVersion']}/{self.value['kind']}"

    def __str__(self) -> str:
        return f"{self.file} {self.value['kind']} {self.value.get('metadata', {}).get('name', '')}"


def manifests() -> list[Manifest]:
    """Every Kubernetes object of deploy/."""
    files = [path for path in sorted(DEPLOY.rglob("*.yaml")) if path.name not in PLAIN]
    return [
        Manifest(str(path.relative_to(DEPLOY)), value)
        for path in files
        for value in yaml.safe_load_all(path.read_text())
    ]


def schemas() -> dict[str, dict[str, Any]]:
    """Schemas of Kubernetes objects, by apiVersion/kind."""
    found: dict[str, dict[str, Any]] = json.loads((DEPLOY / "schemas/objects.json").read_text())
    return found


def compose() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return value


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """(where, arguments of `tsdb`) of every container, Spark application and service."""
    for manifest in manifests():
        for found in _dicts(manifest.value):
            if "image" in found:
                yield str(manifest), found["arguments"] if "arguments" in found else found["args"]
    for name, service in compose()["services"].items():
        if service["image"] == "kafka-tsdb":
            yield f"compose.yaml {name}", service["command"]


def variables() -> Iterator[tuple[str, str]]:
    """(where, name) of every environment variable that is ours."""
    for manifest in manifests():
        for found in _dicts(manifest.value):
            for one in found.get("env", []):
                yield str(manifest), one["name"]
            yield from ((str(manifest), name.rpartition(".")[2]) for name in found.get("sparkConf", {}))
    for name, service in compose()["services"].items():
        yield from ((f"compose.yaml {name}", variable) for variable in service.get("environment", {}))


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _dicts(child)
