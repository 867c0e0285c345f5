"""Each installation of deploy/kubernetes is whole: one engine of the chunk stage, and every name leads to an object."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.deploy_files import (
    DEPLOY,
    JOBS,
    KUBERNETES,
    KUSTOMIZATION,
    Manifest,
    manifests,
    overlays,
    parsed,
    rendered,
    run_tool,
    schema_faults,
    spark_defaults,
    spark_settings,
)

OVERLAYS = overlays()
ON_SPARK = ["", "overlays/secure", "overlays/spark", "overlays/spark-operator"]
ROLES = {"gateway", "store", "loader", "querier"}
by_overlay = pytest.mark.parametrize("overlay", OVERLAYS, ids=[name or "default" for name in OVERLAYS])
by_spark_overlay = pytest.mark.parametrize("overlay", ON_SPARK, ids=[name or "default" for name in ON_SPARK])


def test_the_overlays_are_those_that_the_document_names() -> None:
    named = set(
        re.findall(
            r"`kubectl apply -k deploy/kubernetes(?:/([\w/-]+))?`", (DEPLOY.parent / "docs/deploy.md").read_text()
        )
    )
    assert named == set(OVERLAYS)


@by_overlay
def test_an_overlay_has_every_role_and_one_engine_of_the_chunk_stage(overlay: str) -> None:
    commands = Counter(command for one in OVERLAYS[overlay] for command in _commands(one))
    assert commands.keys() >= ROLES
    engines = {name: count for name, count in commands.items() if name in ("chunker", "run", "pipeline")}
    assert engines == ({"pipeline": 1} if overlay in ON_SPARK else {"chunker": 1})
    # Jobs never wait for cores of the stream, nor the stream for theirs.
    assert commands["scheduler"] == (overlay in ON_SPARK)


def test_the_default_is_the_chunk_stage_on_spark_without_an_operator() -> None:
    assert _named(OVERLAYS[""]) == _named(OVERLAYS["overlays/spark"])
    assert all(one.value["apiVersion"] != "sparkoperator.k8s.io/v1beta2" for one in OVERLAYS[""])


@by_overlay
def test_an_overlay_has_each_name_once_and_creates_its_namespaces(overlay: str) -> None:
    objects = OVERLAYS[overlay]
    created = {one.name for one in objects if one.value["kind"] == "Namespace"}
    assert created == {"kafka-tsdb", *(["kafka-tsdb-spark"] if overlay in ON_SPARK else [])}
    spread = {one.namespace for one in objects if one.value["kind"] not in ("Namespace", "ClusterIssuer")}
    # The authority of all servers is where cert-manager looks for it.
    assert spread == created | ({"cert-manager"} if overlay.startswith("overlays/secure") else set())
    assert [name for name, count in Counter(_named(objects)).items() if count > 1] == []


@by_spark_overlay
def test_rights_in_kubernetes_end_with_the_namespace_of_spark(overlay: str) -> None:
    objects = OVERLAYS[overlay]
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    rights = [one for one in objects if one.value["kind"] in kinds]
    assert {(one.value["kind"], one.namespace) for one in rights} == {(kind, "kafka-tsdb-spark") for kind in kinds[:3]}
    subjects = [each for one in rights for each in one.value.get("subjects", [])]
    assert all(subject["namespace"] == "kafka-tsdb-spark" for subject in subjects)
    roles = {labels["role"] for one in objects if one.namespace == "kafka-tsdb-spark" for labels in _pod_labels(one)}
    assert roles == {"spark"}


@by_overlay
def test_an_overlay_names_only_objects_that_it_has(overlay: str) -> None:
    objects = OVERLAYS[overlay]
    names = set(_named(objects))
    labels = [(one.namespace, labels) for one in objects for labels in _pod_labels(one)]
    for one in objects:
        value = one.value
        if value["kind"] == "Service":
            selector = value["spec"]["selector"].items()
            assert any(at == one.namespace and selector <= each.items() for at, each in labels), str(one)
        assert _referred(one) <= names, str(one)


@by_overlay
def test_mounts_have_volumes(overlay: str) -> None:
    for one in OVERLAYS[overlay]:
        for place in _pods(one.value):
            volumes = [volume["name"] for volume in place["volumes"]]
            assert len(volumes) == len(set(volumes)), str(one)
            holders = [*place.get("containers", []), *place.get("initContainers", [])]
            holders += [place[part] for part in ("driver", "executor") if part in place]
            mounted = {mount["name"] for each in holders for mount in each.get("volumeMounts", [])}
            assert mounted == set(volumes), str(one)


@by_overlay
def test_services_lead_to_ports_of_their_pods(overlay: str) -> None:
    servers = [one.value["spec"]["template"] for one in OVERLAYS[overlay] if _is_server(one)]
    for one in OVERLAYS[overlay]:
        if one.value["kind"] != "Service":
            continue
        selector = one.value["spec"]["selector"]
        for template in servers:
            if selector.items() <= template["metadata"]["labels"].items():
                ports = template["spec"]["containers"][0]["ports"]
                known = {port["name"] for port in ports} | {port["containerPort"] for port in ports}
                assert {port["targetPort"] for port in one.value["spec"]["ports"]} <= known, str(one)


@by_spark_overlay
def test_spark_has_warm_workers_settings_on_its_executors_and_needs_no_volume(overlay: str) -> None:
    objects = OVERLAYS[overlay]
    (settings,) = filter(None, (spark_settings(one) for one in objects))
    assert settings["spark.python.daemon.module"] == "spark_backfill.worker_daemon"
    assert settings["spark.executorEnv.TSDB_CONFIG"] == "/etc/kafka-tsdb/tsdb.toml"
    assert [one.name for one in objects if one.value["kind"] == "PersistentVolumeClaim"] == []
    (arguments,) = _of_stream(objects)
    assert not [word for word in arguments if word.startswith("--checkpoint")], "no folder would outlive the pod"


def test_executors_reach_the_driver_by_its_service() -> None:
    objects = OVERLAYS["overlays/spark"]
    (settings,) = filter(None, (spark_settings(one) for one in objects))
    (service,) = (
        one for one in objects if one.value["kind"] == "Service" and one.name == settings["spark.driver.host"]
    )
    ports = {str(port["port"]) for port in service.value["spec"]["ports"]}
    assert {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]} <= ports
    # The driver becomes ready through its executors, so its address must not wait for that.
    assert service.value["spec"]["publishNotReadyAddresses"]


def test_executors_have_the_image_the_user_and_the_settings_of_the_driver() -> None:
    objects = OVERLAYS["overlays/spark"]
    (driver,) = (one.value["spec"] for one in objects if one.value["kind"] == "Deployment" and one.name == "spark")
    (executor,) = (one.value["spec"] for one in manifests() if one.kind == "v1/Pod")
    pod, (container,) = driver["template"]["spec"], driver["template"]["spec"]["containers"]
    images = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    assert images["EXECUTOR_IMAGE"] == executor["containers"][0]["image"] == container["image"]
    assert executor["securityContext"] == pod["securityContext"]
    assert executor["containers"][0]["volumeMounts"][0] in container["volumeMounts"]
    mounted = {volume["configMap"]["name"] for volume in executor["volumes"]}
    # Spark writes the pods of executors, so the name in their template cannot have a hash. The settings are the same.
    maps = {one.name: one.value["data"] for one in objects if one.value["kind"] == "ConfigMap"}
    (own,) = (volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == "config")
    assert [maps[name] for name in mounted] == [maps[own]]
    # A second driver would be refused by the group while the first one runs.
    assert (driver["replicas"], driver["strategy"]) == (1, {"type": "Recreate"})


def test_files_that_settings_name_are_mounted_where_they_say() -> None:
    objects = OVERLAYS["overlays/spark"]
    (config,) = (one for one in objects if spark_settings(one))
    (driver,) = (one.value["spec"] for one in objects if one.value["kind"] == "Deployment" and one.name == "spark")
    (container,) = driver["template"]["spec"]["containers"]
    (folder,) = (mount["mountPath"] for mount in _holders(driver["template"]["spec"], config.name))
    files = {f"{folder}/{name}" for name in config.value["data"]}
    assert spark_settings(config)["spark.kubernetes.executor.podTemplateFile"] in files
    assert {"name": "SPARK_CONF_DIR", "value": folder} in container["env"]


def test_both_forms_of_the_application_have_the_same_size_and_arguments() -> None:
    (plain,) = filter(None, (spark_settings(one) for one in OVERLAYS["overlays/spark"]))
    applications = [one for one in OVERLAYS["overlays/spark-operator"] if one.value["kind"] == "SparkApplication"]
    (operator,) = (one.value["spec"] for one in applications)
    sizes = {
        f"spark.executor.{name}": str(operator["executor"][name])
        for name in ("instances", "cores", "memory", "memoryOverhead")
    }
    assert {name: plain[name] for name in sizes} == sizes
    assert plain["spark.driver.memory"] == operator["driver"]["memory"]
    (words,) = (
        args for one in OVERLAYS["overlays/spark"] for args in _arguments(one) if args[:2] == ["spark", "pipeline"]
    )
    assert [word for word in words if not word.startswith("--conf=")] == operator["arguments"]


def test_the_jobs_are_an_addition_to_chunkers_alone() -> None:
    jobs = rendered(JOBS)
    assert {command for one in jobs for command in _commands(one)} == {"merge-late", "downsample", "verify"}
    assert not {(one.value["kind"], one.name) for one in jobs} & {
        (one.value["kind"], one.name) for one in OVERLAYS["overlays/small"]
    }


def test_a_table_is_maintained_by_its_cron_job_alone(tmp_path: Path) -> None:
    places = {"resources": "overlays/small", "components": "components/tables"}
    kustomization = {key: [os.path.relpath(KUBERNETES / place, tmp_path)] for key, place in places.items()}
    (tmp_path / KUSTOMIZATION).write_text(yaml.safe_dump(kustomization))
    objects = parsed("tables", run_tool("kubectl", "kustomize", str(tmp_path)))
    assert [fault for one in objects for fault in schema_faults(one)] == []
    (loader,) = (one for one in objects if (one.value["kind"], one.name) == ("Deployment", "loader"))
    (container,) = loader.value["spec"]["template"]["spec"]["containers"]
    assert {"name": "TSDB_TABLES_UPKEEP_INTERVAL_S", "value": "0"} in container["env"]
    (job,) = (one for one in objects if one.value["kind"] == "CronJob")
    pod = job.value["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    steps = [*pod["initContainers"], *pod["containers"]]
    assert [one["args"][:3] for one in steps] == [["tables", "compact", "--yes"], ["tables", "expire", "--yes"]]
    secret = [{"secretRef": {"name": "tables"}}]
    assert [one["envFrom"] for one in (container, *steps)] == [secret] * 3
    settings = {one.name for one in objects if one.value["kind"] == "ConfigMap"}
    assert {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume} <= settings


@pytest.mark.parametrize("component", ["jobs", "canary", "ruler", "tables"])
def test_objects_that_a_component_adds_are_in_the_namespace_of_the_base(component: str) -> None:
    """In another namespace the settings are missing, because kustomize finds their hashed name only within one
    namespace.
    """
    assert {one.namespace for one in rendered(KUBERNETES / "components" / component)} == {"kafka-tsdb"}


def test_every_file_is_one_that_a_kustomization_uses() -> None:
    used, folders = set(), [path.parent for path in KUBERNETES.rglob(KUSTOMIZATION)]
    for folder in folders:
        value = yaml.safe_load((folder / KUSTOMIZATION).read_text())
        names = [*value.get("resources", []), *value.get("components", [])]
        names += [patch["path"] for patch in value.get("patches", []) if "path" in patch]
        names += [file for one in value.get("configMapGenerator", []) for file in one.get("files", [])]
        used |= {(folder / name).resolve() for name in names}
    files = {path for path in KUBERNETES.rglob("*") if path.is_file() and path.name != KUSTOMIZATION}
    assert files == {path for path in used if path.is_file()}


def test_lines_of_spark_defaults_are_names_and_values() -> None:
    assert spark_defaults("# a comment\na.b   1\n\nc.d e f\n") == {"a.b": "1", "c.d": "e f"}


def _named(objects: list[Manifest]) -> list[tuple[str, str, str]]:
    return [(one.namespace, one.value["kind"], one.name) for one in objects]


def _is_server(one: Manifest) -> bool:
    return one.value["kind"] in ("Deployment", "StatefulSet")


def _arguments(one: Manifest) -> list[list[str]]:
    """Arguments of `tsdb` of each container of an object, or of the application."""
    containers = [each for pod in _pods(one.value) for each in pod.get("containers", [])]
    found = [each["args"] for each in containers if "args" in each]
    return [*found, one.value["spec"]["arguments"]] if "arguments" in one.value.get("spec", {}) else found


def _of_stream(objects: list[Manifest]) -> list[list[str]]:
    """Arguments of the streams."""
    return [args for one in objects for args in _arguments(one) if args[:2] == ["spark", "pipeline"]]


def _commands(one: Manifest) -> set[str]:
    """Roles and jobs that an object runs; "pipeline" is the stream on Spark."""
    found = {tuple(args[:2]) for args in _arguments(one)}
    return {words[1] if words[0] == "spark" else words[0] for words in found}


def _pod_labels(one: Manifest) -> list[dict[str, str]]:
    if _is_server(one):
        return [one.value["spec"]["template"]["metadata"]["labels"]]
    if "driver" in one.value.get("spec", {}):
        # Spark sets this label on the pods that it starts.
        return [{**one.value["spec"]["driver"]["labels"], "spark-role": "driver"}]
    return []


def _referred(one: Manifest) -> set[tuple[str, str, str]]:
    """(namespace, kind, name) of every object that an object needs."""
    found = {
        (each["kind"], each["name"]) for each in [*one.value.get("subjects", []), one.value.get("roleRef")] if each
    }
    for pod in _pods(one.value):
        for volume in pod["volumes"]:
            if "configMap" in volume:
                found.add(("ConfigMap", volume["configMap"]["name"]))
            if "persistentVolumeClaim" in volume:
                found.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
        account = pod.get("serviceAccountName") or pod.get("driver", {}).get("serviceAccount")
        if account:
            found.add(("ServiceAccount", account))
    target = one.value.get("spec", {}).get("scaleTargetRef")
    if target:
        found.add((target["kind"], target["name"]))
    return {(one.namespace, *each) for each in found}


def _pods(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Mappings with volumes and containers, at any depth."""
    found = [value] if "volumes" in value else []
    for child in value.values():
        if isinstance(child, dict):
            found += _pods(child)
    return found


def _holders(pod: dict[str, Any], source: str) -> list[dict[str, Any]]:
    """Mounts of the volume that comes from the object with this name."""
    volumes = {
        volume["name"]
        for volume in pod["volumes"]
        if source in (volume.get("configMap", {}).get("name"), volume.get("persistentVolumeClaim", {}).get("claimName"))
    }
    holders = [*pod.get("containers", []), *(pod[part] for part in ("driver", "executor") if part in pod)]
    return [mount for each in holders for mount in each.get("volumeMounts", []) if mount["name"] in volumes]
