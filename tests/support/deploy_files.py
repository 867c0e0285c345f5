"""The manifests in deploy/: rendered by kubectl, checked by the published schemas, and the command lines in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate.utils import all_versions, major_minor, schema_contents
from referencing import Registry, Resource

from support.oracles.schema import faults
from support.shared_servers import once_a_run

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
JOBS = KUBERNETES / "components/jobs"  # The one component that is in no overlay.
EXPERIMENT = KUBERNETES / "experiment"
KUSTOMIZATION = "kustomization.yaml"
KUBERNETES_RELEASES = ("1.32", "1.37")
RUN_WITHIN_S = 240.0  # A run takes tens of milliseconds on an idle machine.


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

    @property
    def namespace(self) -> str:
        return str(self.value.get("metadata", {}).get("namespace", ""))

    def __str__(self) -> str:
        return f"{self.file} {self.value['kind']} {self.name}"


@cache  # Modules of tests share them too.
def manifests() -> list[Manifest]:
    """Every object of deploy/kubernetes once, also the objects inside of ConfigMaps."""
    folders = [*overlay_folders(), JOBS, EXPERIMENT]
    found = {json.dumps(one.value, sort_keys=True): one for folder in folders for one in rendered(folder)}
    objects = list(found.values())
    return objects + [inside for one in objects for inside in _inside(one)]


def overlay_folders() -> list[Path]:
    """Folders that stand for a whole installation: the default, and each overlay."""
    return [KUBERNETES, *(path.parent for path in sorted(KUBERNETES.glob(f"overlays/*/{KUSTOMIZATION}")))]


@cache  # Modules of tests share them, and change copies alone.
def overlays() -> dict[str, list[Manifest]]:
    """Folder below deploy/kubernetes ("" for itself) -> its objects, as `kubectl apply -k` creates them."""
    return {
        folder.relative_to(KUBERNETES).as_posix().removeprefix("."): rendered(folder) for folder in overlay_folders()
    }


def rendered(folder: Path) -> list[Manifest]:
    """Objects of a folder with a kustomization, by kubectl."""
    return parsed(folder.relative_to(DEPLOY).as_posix(), _kustomized(folder))


def parsed(place: str, text: str) -> list[Manifest]:
    """Objects of a text of several YAML documents. place: names them in messages."""
    # libyaml's loader is ten times as fast, and overlays have thousands of lines.
    return [Manifest(place, value) for value in yaml.load_all(text, yaml.CSafeLoader) if value]


@cache
def _kustomized(folder: Path) -> str:
    """The text of kubectl. All processes of a run need it, and the first one asks."""

    def ask() -> str:
        return run_tool("kubectl", "kustomize", str(folder))

    return once_a_run(f"{folder.relative_to(DEPLOY).as_posix().replace('/', '-')}.yaml", ask)


def run_tool(name: str, *arguments: str) -> str:
    """The output of kubectl or helm; its complaint as an assertion when it fails."""
    done = subprocess.run([tool(name), *arguments], capture_output=True, text=True, timeout=RUN_WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tool(name: str) -> str:
    """Path of kubectl or helm: the ones of `make kubernetes`, or those of the system."""
    own = Path(sys.executable).parent / name
    found = str(own) if own.is_file() else shutil.which(name)
    assert found, f"{name} is missing: `make kubernetes` installs it"
    return found


def _inside(one: Manifest) -> list[Manifest]:
    if one.value["kind"] != "ConfigMap":
        return []
    files = {name: text for name, text in one.value["data"].items() if name.endswith(".yaml")}
    return [Manifest(f"{one.file} {name}", yaml.safe_load(text)) for name, text in files.items()]


def schema_faults(one: Manifest) -> list[str]:
    """Differences of an object from the published schema of its kind, unknown fields included.

    Kinds of Kubernetes: in the oldest and in the newest release that docs/deploy.md names. Others:
    deploy/schemas/objects.json, with the fields that we use.
    """
    others: dict[str, dict[str, Any]] = json.loads((DEPLOY / "schemas/objects.json").read_text())
    if one.kind in others:
        return list(faults(others[one.kind], one.value))
    value = json.loads(json.dumps(one.value))  # Dates of YAML are no values of JSON.
    return [
        f"{release}: {fault.json_path}: {fault.message}"
        for release in KUBERNETES_RELEASES
        for fault in _validator(release, one.kind).iter_errors(value)
    ]


@cache
def _validator(release: str, kind: str) -> Draft202012Validator:
    """The published schema of a kind. It is kept, because the definitions of one release take 0.1 s to read."""
    name, _, word = kind.rpartition("/")
    group, _, version = name.rpartition("/")
    file = "-".join(filter(None, (word.lower(), group.partition(".")[0], version)))
    schema = schema_contents(f"{_folder(release)}/{file}.json", release)
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions(release))


@cache
def _definitions(release: str) -> Registry[Any]:
    return Resource.from_contents(schema_contents(f"{_folder(release)}/_definitions.json", release)) @ Registry()


def _folder(release: str) -> str:
    (version,) = {one for one in all_versions() if major_minor(one) == release}
    return f"kubernetes-json-schema/v{version}-local-strict"


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
    """Settings of a file spark-defaults.conf, which has a name and a value in each line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in lines)}


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _dicts(child)
