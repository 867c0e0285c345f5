"""The manifests in deploy/: parsed, put together as kustomize does it, and the command lines in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
KUSTOMIZATION = "kustomization.yaml"


@dataclass(frozen=True)
class Manifest:
    """One object of a file."""

    file: str
    value: dict[str, Any]

    @property
    def kind(self) -> str:
        return f"{self.value['apiVersion']}/{self.value['kind']}"

    @property
    def name(self) -> str:
        return str(self.value.get("metadata", {}).get("name", ""))

    def __str__(self) -> str:
        return f"{self.file} {self.value['kind']} {self.name}"


def manifests() -> list[Manifest]:
    """Every object of deploy/kubernetes, those inside of ConfigMaps too."""
    found = [one for path in sorted(KUBERNETES.rglob("*.yaml")) for one in _objects(path)]
    return found + [inside for one in found for inside in _inside(one)]


def overlays() -> dict[str, list[Manifest]]:
    """Folder below deploy/kubernetes ("" for itself) -> its objects, as `kubectl apply -k` creates them.

    Only of folders that stand for a whole installation: the default, and each overlay.
    """
    folders = [KUBERNETES, *(path.parent for path in sorted(KUBERNETES.glob(f"overlays/*/{KUSTOMIZATION}")))]
    return {folder.relative_to(KUBERNETES).as_posix().removeprefix("."): rendered(folder) for folder in folders}


def rendered(folder: Path) -> list[Manifest]:
    """Objects of a folder with a kustomization, those of the folders and files that it lists included.

    Reads `resources`, `components` and `namespace`; the schema allows a kustomization nothing else.
    """
    value = yaml.safe_load((folder / KUSTOMIZATION).read_text())
    found: list[Manifest] = []
    for name in [*value["resources"], *value.get("components", [])]:
        path = folder / name
        found += rendered(path) if path.is_dir() else _objects(path)
    for one in found:
        if "namespace" in value and one.value["kind"] != "Namespace":
            one.value["metadata"]["namespace"] = value["namespace"]
    return found


def _objects(path: Path) -> list[Manifest]:
    name = path.resolve().relative_to(DEPLOY).as_posix()
    return [Manifest(name, value) for value in yaml.safe_load_all(path.read_text())]


def _inside(one: Manifest) -> list[Manifest]:
    if one.value["kind"] != "ConfigMap":
        return []
    files = {name: text for name, text in one.value["data"].items() if name.endswith(".yaml")}
    return [Manifest(f"{one.file} {name}", yaml.safe_load(text)) for name, text in files.items()]


def schemas() -> dict[str, dict[str, Any]]:
    """Schemas of Kubernetes objects, by apiVersion/kind."""
    found: dict[str, dict[str, Any]] = json.loads((DEPLOY / "schemas/objects.json").read_text())
    return found


def compose() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return value


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """(where, arguments of `tsdb`) of every container, Spark application and service."""
    for manifest in manifests():
        for found in _dicts(manifest.value):
            if "args" in found or "arguments" in found:
                yield str(manifest), found["arguments"] if "arguments" in found else found["args"]
    for name, service in compose()["services"].items():
        if service["image"].startswith("kafka-tsdb"):
            yield f"compose.yaml {name}", service["command"]


def variables() -> Iterator[tuple[str, str]]:
    """(where, name) of every environment variable that is ours."""
    for manifest in manifests():
        for found in _dicts(manifest.value):
            for one in found.get("env", []):
                yield str(manifest), one["name"]
        yield from ((str(manifest), name.rpartition(".")[2]) for name in spark_settings(manifest))
    for name, service in compose()["services"].items():
        yield from ((f"compose.yaml {name}", variable) for variable in service.get("environment", {}))


def spark_settings(manifest: Manifest) -> dict[str, str]:
    """Spark's settings in an object: `sparkConf` of an application, `spark-defaults.conf` of a ConfigMap."""
    if manifest.value["kind"] == "ConfigMap":
        return spark_defaults(manifest.value["data"].get("spark-defaults.conf", ""))
    found: dict[str, str] = manifest.value.get("spec", {}).get("sparkConf", {})
    return found


def spark_defaults(text: str) -> dict[str, str]:
    """Settings of a file spark-defaults.conf: a name and a value a line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in lines)}


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _dicts(child)
