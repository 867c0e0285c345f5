"""Pods of deploy/kubernetes: rights of Pod Security's level "restricted", places, and the order of an upgrade."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.deploy_files import ROOT, Manifest, manifests, overlays
from tsdb.config.common import CommonSettings

OVERLAYS = overlays()
ALL = manifests()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
SMALL = ("overlays/small", "overlays/secure-small")
# Readers first: each role, and the names of the readers of what it writes. docs/deploy.md, "Order of an upgrade".
READERS = {
    "gateway": ["store:7411", "loader:7411", "chunker:7411", "spark.kafka-tsdb-spark:7411"],
    "chunker": ["loader:7411", "querier-pods:7411"],
    "spark": ["loader.kafka-tsdb:7411", "querier-pods.kafka-tsdb:7411"],
    "spark-jobs": ["loader.kafka-tsdb:7411", "querier-pods.kafka-tsdb:7411"],
}
by_overlay = pytest.mark.parametrize("overlay", OVERLAYS, ids=[name or "default" for name in OVERLAYS])


def pods(objects: list[Manifest]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(object, spec of its pods) of all objects that have pods. Spark's operator creates its pods later, so they are
    not among them.
    """
    for one in objects:
        spec = one.value.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is not None:
            yield str(one), template["spec"]
        elif one.value["kind"] == "Pod":
            yield str(one), spec


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["containers"], *pod.get("initContainers", [])]


PODS = list(pods(ALL))
by_pod = pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _ in PODS])


@by_overlay
def test_namespaces_enforce_restricted_pods(overlay: str) -> None:
    for one in OVERLAYS[overlay]:
        if one.value["kind"] == "Namespace":
            assert one.value["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@by_pod
def test_pods_satisfy_the_level_restricted(name: str, pod: dict[str, Any]) -> None:
    # The list of https://kubernetes.io/docs/concepts/security/pod-security-standards/.
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {"hostNetwork", "hostPID", "hostIPC"} & pod.keys() == set()
    for container in containers(pod):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in container["securityContext"]
        assert all("hostPort" not in port for port in container.get("ports", []))
    kinds = {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret", "projected"}


def test_an_application_of_the_operator_gives_its_pods_the_same_rights() -> None:
    (application,) = (one.value["spec"] for one in ALL if one.value["kind"] == "SparkApplication")
    (executor,) = (one.value["spec"] for one in ALL if one.value["kind"] == "Pod")
    for part in (application["driver"], application["executor"]):
        assert part["podSecurityContext"] == executor["securityContext"]
        assert part["securityContext"] == executor["containers"][0]["securityContext"]


@by_pod
def test_only_the_driver_of_spark_has_a_token_of_kubernetes(name: str, pod: dict[str, Any]) -> None:
    assert ("serviceAccountName" in pod) == (pod.get("automountServiceAccountToken") is not False)
    assert pod.get("serviceAccountName", "spark") == "spark"


@by_pod
def test_images_have_the_tag_of_the_release_and_containers_have_bounds(name: str, pod: dict[str, Any]) -> None:
    for container in containers(pod):
        assert container["image"] in (f"kafka-tsdb:{VERSION}", f"kafka-tsdb-spark:{VERSION}")
        # Spark sets those of executors.
        assert container["name"] == "executor" or container["resources"]["limits"]["memory"]


@by_overlay
def test_every_replicated_role_has_a_budget_and_spreads_over_zones_and_nodes(overlay: str) -> None:
    objects = OVERLAYS[overlay]
    budgets = [one.value["spec"] for one in objects if one.value["kind"] == "PodDisruptionBudget"]
    for one in servers(objects):
        template = one.value["spec"]["template"]
        labels, pod = template["metadata"]["labels"], template["spec"]
        if labels["role"] == "spark":  # One pod.
            continue
        (budget,) = (each for each in budgets if each["selector"]["matchLabels"].items() <= labels.items())
        assert budget["maxUnavailable"] == 1
        spread = {each["topologyKey"]: each for each in pod["topologySpreadConstraints"]}
        assert spread["topology.kubernetes.io/zone"]["maxSkew"] == 1
        assert "kubernetes.io/hostname" in spread or "affinity" in pod
        for each in spread.values():
            assert each["labelSelector"]["matchLabels"].items() <= labels.items()


@by_overlay
def test_replicas_of_a_shard_are_never_on_one_node_and_in_one_zone_where_zones_are_known(overlay: str) -> None:
    for one in shards(OVERLAYS[overlay]):
        own = one.value["spec"]["selector"]["matchLabels"]
        pod = one.value["spec"]["template"]["spec"]
        (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": own}}
        (zone,) = pod["topologySpreadConstraints"]
        assert zone["labelSelector"] == {"matchLabels": own}
        # Nodes without a zone would take no pod.
        assert zone["whenUnsatisfiable"] == ("ScheduleAnyway" if overlay in SMALL else "DoNotSchedule")


@by_overlay
def test_every_partition_is_in_one_shard_which_has_two_replicas(overlay: str) -> None:
    sets = shards(OVERLAYS[overlay])
    for number, one in enumerate(sets):
        environment = container_variables(one)
        assert one.value["spec"]["selector"]["matchLabels"]["shard"] == str(number)
        assert environment["SHARDS"] == str(len(sets))
        assert environment["TSDB_SHARD"] == "$(SHARD)/$(SHARDS)"
        assert one.value["spec"]["replicas"] >= 2


@by_overlay
def test_a_replica_is_replaced_only_while_the_others_of_its_shard_are_ready(overlay: str) -> None:
    """The controller of StatefulSets waits for every pod of a set; with OrderedReady also before it deletes one."""
    for one in shards(OVERLAYS[overlay]):
        spec = one.value["spec"]
        assert spec["podManagementPolicy"] == "OrderedReady"
        assert "updateStrategy" not in spec or spec["updateStrategy"] == {"type": "RollingUpdate"}
        # Long enough for queriers to find the new address: DNS keeps a name for 30 s, and queriers resolve it every 10
        # s.
        assert spec["minReadySeconds"] >= 40


@by_overlay
def test_roles_that_serve_callers_start_the_new_pod_before_the_old_one_goes(overlay: str) -> None:
    for one in servers(OVERLAYS[overlay]):
        if one.name in ("gateway", "querier"):
            assert one.value["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


@by_overlay
def test_a_pod_answers_for_a_while_after_kubernetes_has_taken_its_address_away(overlay: str) -> None:
    for one in servers(OVERLAYS[overlay]):
        pod = one.value["spec"]["template"]["spec"]
        if role_of(one) != "spark":  # Only executors call the driver, and nobody the jobs.
            pause_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert pause_s >= 10
            drain_s = CommonSettings.model_fields["drain_s"].default
            assert pod["terminationGracePeriodSeconds"] > pause_s + drain_s


@by_overlay
def test_a_writer_waits_for_the_readers_of_its_records(overlay: str) -> None:
    waiting = {
        one.name: init["args"]
        for one in servers(OVERLAYS[overlay])
        for init in one.value["spec"]["template"]["spec"].get("initContainers", [])
    }
    assert {name: arguments[0] for name, arguments in waiting.items()} == dict.fromkeys(waiting, "await-release")
    on_spark = ["spark-jobs"] if overlay == "overlays/spark-operator" else ["spark", "spark-jobs"]
    chunk_stage = ["chunker"] if overlay in SMALL else on_spark
    secured = ["--tls-ca=/etc/kafka-tsdb-tls/ca.crt"] if overlay.startswith("overlays/secure") else []
    assert {name: arguments[1:] for name, arguments in waiting.items()} == {
        name: [*READERS[name], *secured] for name in ["gateway", *chunk_stage]
    }


@by_overlay
def test_names_to_wait_for_have_all_pods_ready_or_not(overlay: str) -> None:
    objects = OVERLAYS[overlay]
    services = {(one.namespace, one.name): one.value["spec"] for one in objects if one.value["kind"] == "Service"}
    found = 0
    for name in {name for names in READERS.values() for name in names}:
        host, _, port = name.partition(":")
        service, _, namespace = host.partition(".")
        spec = services.get((namespace or "kafka-tsdb", service))
        if spec is not None:  # Of the engine that this installation has.
            assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
            assert int(port) in {each["port"] for each in spec["ports"]}
            found += 1
    assert found >= 5


@by_overlay
def test_roles_scale_by_cpu_and_have_no_fixed_number_that_an_apply_would_bring_back(overlay: str) -> None:
    objects = OVERLAYS[overlay]
    scaled = {
        one.value["spec"]["scaleTargetRef"]["name"] for one in objects if one.value["kind"] == "HorizontalPodAutoscaler"
    }
    assert scaled == {"gateway", "querier"}
    for one in servers(objects):
        assert ("replicas" in one.value["spec"]) == (one.name not in scaled)


@by_overlay
def test_settings_have_their_hash_in_the_name(overlay: str) -> None:
    """With the hash a changed setting restarts the pods, and pods of the release before keep their settings."""
    maps = {one.name for one in OVERLAYS[overlay] if one.value["kind"] == "ConfigMap"}
    assert {name.rpartition("-")[0] for name in maps} <= {"kafka-tsdb", "spark"}
    for name in maps - {"kafka-tsdb-executors"}:
        assert len(name.rpartition("-")[2]) == 10, name


def test_the_executors_template_is_the_one_that_pods_of_this_file_check() -> None:
    texts = [one.value["data"]["executor.yaml"] for one in ALL if "executor.yaml" in one.value.get("data", {})]
    assert [yaml.safe_load(text) for text in texts] == [one.value for one in ALL if one.value["kind"] == "Pod"]


def servers(objects: list[Manifest]) -> list[Manifest]:
    return [one for one in objects if one.value["kind"] in ("Deployment", "StatefulSet")]


def role_of(one: Manifest) -> str:
    return str(one.value["spec"]["template"]["metadata"]["labels"]["role"])


def shards(objects: list[Manifest]) -> list[Manifest]:
    found = [one for one in objects if one.value["kind"] == "StatefulSet"]
    assert found
    return found


def container_variables(one: Manifest) -> dict[str, str]:
    (container,) = one.value["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}
