"""The experiment in deploy/ has no object in common with an installation, and nothing of an installation selects it."""

from __future__ import annotations

from typing import Any

import pytest

from support.deploy_files import EXPERIMENT, Manifest, overlays, rendered

OVERLAYS = overlays()
OBJECTS = rendered(EXPERIMENT)
(SET,) = (one for one in OBJECTS if one.value["kind"] == "StatefulSet")
LABELS: dict[str, str] = SET.value["spec"]["template"]["metadata"]["labels"]
POD: dict[str, Any] = SET.value["spec"]["template"]["spec"]
by_overlay = pytest.mark.parametrize("overlay", OVERLAYS, ids=[name or "default" for name in OVERLAYS])


@by_overlay
def test_an_experiment_is_deleted_without_an_object_of_production(overlay: str) -> None:
    assert not set(map(_key, OBJECTS)) & set(map(_key, OVERLAYS[overlay]))


@by_overlay
def test_no_object_of_production_selects_the_pods_of_an_experiment(overlay: str) -> None:
    """A policy that closes all pods of the namespace is no choice of pods."""
    for one in OVERLAYS[overlay]:
        for selector in _selectors(one.value["spec"] if isinstance(one.value.get("spec"), dict) else {}):
            assert not selector or not selector.items() <= LABELS.items(), str(one)


@by_overlay
def test_the_experiment_runs_on_no_node_of_a_store_of_production(overlay: str) -> None:
    (rule,) = POD["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    stores = [one for one in OVERLAYS[overlay] if one.value["kind"] == "StatefulSet"]
    assert stores
    for one in stores:
        labels = one.value["spec"]["template"]["metadata"]["labels"]
        assert rule["labelSelector"].keys() == {"matchExpressions"}
        assert all(labels[term["key"]] in term["values"] for term in rule["labelSelector"]["matchExpressions"])


def test_the_experiment_is_named_by_its_label_and_knows_the_address_of_production() -> None:
    (container,) = POD["containers"]
    variables = {one["name"]: one for one in container["env"]}
    assert variables["TSDB_EXPERIMENT"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.labels['experiment']"}}
    assert LABELS["experiment"]
    (production,) = (word.partition("=")[2] for word in container["args"] if word.startswith("--production="))
    services = {(one.namespace, one.name) for one in OVERLAYS[""] if one.value["kind"] == "Service"}
    assert (SET.namespace, production.partition(":")[0]) in services
    assert SET.value["spec"]["replicas"] == 1


def _key(one: Manifest) -> tuple[str, str, str]:
    return one.kind, one.namespace, one.name


def _selectors(spec: dict[str, Any]) -> list[dict[str, str]]:
    """The labels that a Service, a set, a budget or a policy selects pods by."""
    found = [spec.get("selector", {}), spec.get("podSelector", {})]
    return [one.get("matchLabels", one) for one in found if "matchExpressions" not in one]
