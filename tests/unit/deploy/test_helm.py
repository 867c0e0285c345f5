"""The Helm chart renders the objects of deploy/kubernetes, and refuses values that contradict each other, by name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.deploy_files import (
    DEPLOY,
    KUBERNETES,
    ROOT,
    RUN_WITHIN_S,
    Manifest,
    parsed,
    rendered,
    run_tool,
    schema_faults,
    tool,
)
from tsdb.config.load import ROLES

pytestmark = pytest.mark.slow  # Helm renders the chart dozens of times.

CHART = DEPLOY / "helm/kafka-tsdb"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SMALL = "chunkStage=chunker,store.zones=preferred"
# Overlay -> the values of the chart that stand for it.
OVERLAYS = {
    "spark": "chunkStage=spark",
    "spark-operator": "chunkStage=spark-operator",
    "small": SMALL,
    "secure": "security.enabled=true",
    "secure-small": f"security.enabled=true,{SMALL}",
}
GIB = 1 << 30


def template(*arguments: str, namespace: str = "kafka-tsdb") -> list[Manifest]:
    return parsed("helm", run_tool("helm", "template", "kafka-tsdb", str(CHART), "-n", namespace, *arguments))


def refusal(*sets: str) -> str:
    """The complaint of `helm template` about values."""
    words = [word for one in sets for word in ("--set", one)]
    command = [tool("helm"), "template", "kafka-tsdb", str(CHART), "-n", "kafka-tsdb", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_WITHIN_S, check=False)
    assert done.returncode != 0, f"{sets} is taken"
    return done.stderr


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_renders_the_objects_of_kustomize(overlay: str) -> None:
    ours = template("--set", "namespace.create=true", "--set", OVERLAYS[overlay])
    theirs = rendered(KUBERNETES / "overlays" / overlay)
    assert [_without_helm(one) for one in _ordered(ours)] == [_by_name(one.value) for one in _ordered(theirs)]


RULES = KUBERNETES / "components/ruler/rules.yaml"
RULER = ("--set", "ruler.enabled=true", "--set-file", f"ruler.files.rules\\.yaml={RULES}")


@pytest.mark.parametrize(("overlay", "component"), [("small", "ruler"), ("secure-small", "secure-ruler")])
def test_the_chart_renders_rulers_as_the_component_does(tmp_path: Path, overlay: str, component: str) -> None:
    ours = template("--set", "namespace.create=true", "--set", OVERLAYS[overlay], *RULER)
    names = {"resources": f"overlays/{overlay}", "components": f"components/{component}"}
    paths = {kind: [os.path.relpath(KUBERNETES / name, tmp_path)] for kind, name in names.items()}
    tag = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    kustomization = {**paths, "images": [{"name": "kafka-tsdb", "newTag": tag}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    theirs = parsed("mine", run_tool("kubectl", "kustomize", str(tmp_path)))
    assert [fault for one in ours for fault in schema_faults(one)] == []
    expected = [_unordered(_by_name(one.value)) for one in _ordered(theirs)]
    assert [_unordered(_without_helm(one)) for one in _ordered(ours)] == expected


def _unordered(value: dict[str, Any]) -> dict[str, Any]:
    """The object; variables, mounts and volumes of rulers by name."""
    if value["kind"] == "Deployment" and value["metadata"]["name"] == "ruler":
        value = json.loads(json.dumps(value))
        pod = value["spec"]["template"]["spec"]
        for owner in (pod, *pod["containers"]):
            for name in owner.keys() & {"env", "volumeMounts", "volumes"}:
                owner[name].sort(key=lambda each: str(each["name"]))
    return value


def test_rulers_have_their_files_and_alertmanagers(tmp_path: Path) -> None:
    values = {
        **PLACED,
        "ruler": {
            "enabled": True,
            "files": {"a.yaml": "groups: []", "b.yml": RULES.read_text()},
            "alertmanagers": ["http://am-0.monitoring:9093", "http://am-1.monitoring:9093"],
        },
    }
    objects = given(values, tmp_path, "--set", "security.enabled=true")
    assert [fault for one in objects for fault in schema_faults(one)] == []
    pod = pod_templates(objects)["ruler"]
    assert_placed(pod)
    variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    assert variables["TSDB_RULES"] == "/etc/kafka-tsdb-rules/a.yaml,/etc/kafka-tsdb-rules/b.yml"
    assert variables["TSDB_RULES_ALERTMANAGERS"] == "http://am-0.monitoring:9093,http://am-1.monitoring:9093"
    (rules,) = (one.value["data"] for one in objects if one.name == "rules" and one.value["kind"] == "ConfigMap")
    assert rules == values["ruler"]["files"]


def test_every_overlay_has_values_of_the_chart() -> None:
    assert {path.name for path in (KUBERNETES / "overlays").iterdir()} == OVERLAYS.keys()


def _ordered(objects: list[Manifest]) -> list[Manifest]:
    return sorted(objects, key=lambda one: (one.namespace, one.kind, one.name))


def _without_helm(one: Manifest) -> dict[str, Any]:
    """The object without what only Helm needs: settings to keep, and a job with a name for each release."""
    value: dict[str, Any] = json.loads(json.dumps(one.value))
    if value["metadata"].get("annotations") == {"helm.sh/resource-policy": "keep"}:
        del value["metadata"]["annotations"]
    if value["kind"] == "Job":
        assert re.fullmatch("setup-[0-9a-f]{10}", value["metadata"]["name"])
        value["metadata"]["name"] = "setup"
    return _by_name(value)


def _by_name(value: dict[str, Any]) -> dict[str, Any]:
    """The job with its variables, mounts and volumes by name: kustomize puts those of a patch first. Else unchanged."""
    if value["kind"] != "Job":
        return value
    found: dict[str, Any] = json.loads(json.dumps(value))
    pod = found["spec"]["template"]["spec"]
    for owner in (pod, *pod["initContainers"], *pod["containers"]):
        for name in ("env", "volumeMounts", "volumes"):
            if name in owner:
                owner[name].sort(key=lambda one: str(one["name"]))
    return found


def test_the_chart_passes_helms_lint() -> None:
    assert "0 chart(s) failed" in run_tool("helm", "lint", "--strict", str(CHART))


def test_the_chart_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_other_values_render_valid_objects_in_another_namespace() -> None:
    objects = template(
        *("--set", "store.shards=5", "--set", "store.replicas=3", "--set", "image.tag=9.9.9"),
        *("--set", "config.hold_extra_ms=3600000"),
        namespace="metrics",
    )
    assert [fault for one in objects for fault in schema_faults(one)] == []
    assert {one.namespace for one in objects if one.value["kind"] != "Namespace"} == {"metrics", "metrics-spark"}
    stores = [one.value["spec"] for one in objects if one.value["kind"] == "StatefulSet"]
    assert [(one["replicas"], one["template"]["metadata"]["labels"]["shard"]) for one in stores] == [
        (3, str(number)) for number in range(5)
    ]
    images = {each["image"] for one in stores for each in one["template"]["spec"]["containers"]}
    assert images == {"kafka-tsdb:9.9.9"}
    settings = next(one.value["data"]["tsdb.toml"] for one in objects if one.value["kind"] == "ConfigMap")
    assert tomllib.loads(settings)["hold_extra_ms"] == 3_600_000


def test_secured_objects_are_valid_and_follow_the_values() -> None:
    objects = template(
        *("--set", "security.enabled=true,security.kafka.cluster=events,security.kafka.namespace=strimzi"),
        *("--set", "security.cassandra.port=9142,security.monitoringNamespace=prometheus,spark.namespace=jobs"),
        *(
            "--set",
            "security.issuer.create=false,security.issuer.name=company,setup.partitions=24,setup.topicReplication=1",
        ),
        namespace="metrics",
    )
    assert [fault for one in objects for fault in schema_faults(one)] == []
    kinds = {one.value["kind"] for one in objects}
    assert "ClusterIssuer" not in kinds
    text = json.dumps([one.value for one in objects])
    assert (
        re.findall(r'"namespace": "(kafka-tsdb[^"]*)"|metadata.name": "(kafka|kafka-tsdb|kafka-tsdb-spark)"', text)
        == []
    )
    issuers = {one.value["spec"]["issuerRef"]["name"] for one in objects if one.value["kind"] == "Certificate"}
    assert issuers == {"company"}
    topics = {one.name: one.value["spec"] for one in objects if one.value["kind"] == "KafkaTopic"}
    assert (topics["metrics"]["partitions"], topics["meta"]["partitions"]) == (24, 1)
    assert topics["chunks"]["config"]["min.insync.replicas"] == 1
    strimzi = [one.value["metadata"]["labels"] for one in objects if one.value["kind"] in ("KafkaTopic", "KafkaUser")]
    assert strimzi == [{"strimzi.io/cluster": "events"}] * len(strimzi)
    policies = json.dumps([one.value["spec"] for one in objects if one.value["kind"] == "NetworkPolicy"])
    assert all(name in policies for name in ("strimzi", "9142", "prometheus", "jobs"))


def test_a_changed_setting_changes_the_name_and_helm_keeps_the_earlier_one() -> None:
    """A pod of the release before may start again before it is replaced."""
    maps = [one for one in template() if one.name.startswith("kafka-tsdb-") and one.value["kind"] == "ConfigMap"]
    other = template("--set", "config.log_level=debug")
    hashed = [one for one in maps if one.name != "kafka-tsdb-executors"]
    assert {one.name for one in hashed} & {one.name for one in other} == set()
    assert all(one.value["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for one in hashed)


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        (["store.shards=19"], "store.shards 19 is above setup.partitions 18"),
        (["store.replicas=1"], "/store/replicas"),
        (
            [f"config.memory_hard_bytes={9 * GIB}"],
            "store.resources.limits.memory 10Gi is below config.memory_hard_bytes",
        ),
        (["store.resources.limits.memory=9Gi"], "store.resources.limits.memory 9Gi is below config.memory_hard_bytes"),
        ([f"config.memory_soft_bytes={9 * GIB}"], "is below config.memory_soft_bytes"),
        (["expected.samplesPerSecond=150000"], "the hold of 36000 s and store memory contradict each other"),
        (["expected.series=200000000"], "the hold of 36000 s and store memory contradict each other"),
        (
            ["expected.samplesPerSecond=80000", "config.hold_extra_ms=3600000"],
            "the hold of 39600 s and store memory contradict each other",
        ),
        (["gateway.minReplicas=9"], "gateway.minReplicas 9 is above gateway.maxReplicas 8"),
        (["querier.resources.requests.cpu=null"], "querier.resources.requests.cpu is missing"),
        (["spark.namespace=kafka-tsdb"], "spark.namespace kafka-tsdb is the namespace of the release"),
        (
            ["security.enabled=true", "chunkStage=spark-operator"],
            "security.enabled and chunkStage spark-operator contradict each other",
        ),
        (["security.enabled=true", "security.issuer.create=false"], "name a ClusterIssuer of yours"),
        (["security.kafka.port=0"], "/security/kafka/port"),
        (["store.shard=3"], "additional properties 'shard' not allowed"),
        (["chunkStage=flink"], "/chunkStage"),
        (["image.tag=a b"], "/image/tag"),
        (["config.token=secret"], "token"),
        (["store.resources.limits.memory=ten"], "/store/resources/limits/memory"),
        (
            ["security.enabled=true", "config.log=kafka://kafka-bootstrap.kafka:9092"],
            "config.log names port 9092, and the network policies of security.enabled open security.kafka.port 9093",
        ),
        (["security.enabled=true", "config.log=kafka://kafka"], "config.log kafka://kafka names no port"),
        (
            ["security.enabled=true", "config.history=cassandra://c:9999/tsdb"],
            "config.history names port 9999, and the network policies of security.enabled open security.cassandra.port",
        ),
        (["ruler.enabled=true"], "ruler.enabled needs ruler.files"),
        (["ruler.files.x=groups"], "invalid propertyName 'x'"),
        (["ruler.alertmanagers[0]=am:9093"], "/ruler/alertmanagers/0"),
        (
            [
                "security.enabled=true,ruler.enabled=true,ruler.files.x\\.yaml=groups",
                "ruler.alertmanagers[0]=https://am.monitoring/alerts",
            ],
            "ruler.alertmanagers names https://am.monitoring/alerts at port 443, and the network policies",
        ),
        (["config.snapshot_dir=/snapshots"], "config.snapshot_dir /snapshots has no volume"),
        (
            ["config.snapshot_dir=/snapshots", "store.snapshots.size=1Gi"],
            "config.snapshot_dir /snapshots and store.snapshots.size contradict each other",
        ),
        (["store.snapshots.size=much"], "/store/snapshots/size"),
        (["tolerations[0].effect=Never"], "/tolerations/0/effect"),
        (["extraEnv[0].value=1"], "/extraEnv/0"),
        (["gateway.extraVolumeMounts[0].name=x"], "/gateway/extraVolumeMounts/0"),
        (["config.log_prefix=a/b"], "/config/log_prefix"),
        (
            ["chunkStage=spark-operator", "nodeSelector.disk=ssd"],
            "nodeSelector and chunkStage spark-operator contradict",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused_by_name(sets: list[str], named: str) -> None:
    assert named in refusal(*sets)


PLACED: dict[str, Any] = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "tsdb", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "In", "values": ["amd64"]}]}]
            }
        }
    },
    "priorityClassName": "high",
    "annotations": {"team": "metrics"},
    "extraEnv": [{"name": "TSDB_LOG_LEVEL", "value": "debug"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "company-ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
}
PULL = ("registry", {"name": "other"})


def given(values: dict[str, Any], tmp_path: Path, *arguments: str) -> list[Manifest]:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return template("--values", str(file), *arguments)


def pod_templates(objects: list[Manifest]) -> dict[str, dict[str, Any]]:
    """Template of the pods of each Deployment, StatefulSet and Job, by the role."""
    kinds = ("Deployment", "StatefulSet", "Job")
    found = [one.value["spec"]["template"] for one in objects if one.value["kind"] in kinds]
    return {one["metadata"]["labels"]["role"]: one for one in found}


def assert_placed(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    assert pod["metadata"]["annotations"]["team"] == "metrics"
    assert spec["nodeSelector"]["disk"] == "ssd"
    assert spec["tolerations"][0] == PLACED["tolerations"][0]
    assert spec["affinity"]["nodeAffinity"] == PLACED["affinity"]["nodeAffinity"]
    assert spec["priorityClassName"] == "high"
    assert PLACED["extraVolumes"][0] in spec["volumes"]
    for container in spec["containers"]:
        assert PLACED["extraEnv"][0] in container["env"]
        assert PLACED["extraVolumeMounts"][0] in container["volumeMounts"]


@pytest.mark.parametrize("stage", ["spark", "chunker"])
def test_values_of_all_pods_reach_the_pods_of_every_role(tmp_path: Path, stage: str) -> None:
    objects = given({**PLACED, "imagePullSecrets": list(PULL)}, tmp_path, "--set", f"chunkStage={stage}")
    assert [fault for one in objects for fault in schema_faults(one)] == []
    found = pod_templates(objects)
    assert found.keys() == {"gateway", "store", "loader", "querier", "setup", stage}
    for pod in found.values():
        assert_placed(pod)
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]
    if stage == "spark":
        (text,) = (
            one.value["data"]["executor.yaml"] for one in objects if "executor.yaml" in one.value.get("data", {})
        )
        assert_placed(yaml.safe_load(text))


@pytest.mark.parametrize("role", ["gateway", "store", "loader", "querier", "chunker"])
def test_values_of_a_role_are_joined_with_those_of_all(tmp_path: Path, role: str) -> None:
    values = {
        role: PLACED,
        "nodeSelector": {"zone": "a"},
        "annotations": {"all": "yes"},
        "extraEnv": [{"name": "A", "value": "1"}],
        "priorityClassName": "low",
    }
    objects = given(values, tmp_path, "--set", "chunkStage=chunker")
    assert [fault for one in objects for fault in schema_faults(one)] == []
    found = pod_templates(objects)
    assert_placed(found[role])
    assert found[role]["spec"]["nodeSelector"] == {"zone": "a", "disk": "ssd"}
    assert found[role]["metadata"]["annotations"] == {"all": "yes", "team": "metrics"}
    other = found["loader" if role == "gateway" else "gateway"]["spec"]
    assert (other["nodeSelector"], other["priorityClassName"]) == ({"zone": "a"}, "low")
    assert {"name": "A", "value": "1"} in other["containers"][0]["env"]


def test_replicas_of_a_shard_stay_on_different_nodes_whatever_affinity_is_given(tmp_path: Path) -> None:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    other = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "noisy"}}}
    objects = given({"store": {"affinity": {"podAntiAffinity": {name: [other]}}}}, tmp_path)
    (rule, own) = pod_templates(objects)["store"]["spec"]["affinity"]["podAntiAffinity"][name]
    assert (rule["topologyKey"], own) == ("kubernetes.io/hostname", other)


def test_snapshots_have_a_volume_of_each_replica() -> None:
    objects = template("--set", "store.snapshots.size=20Gi,store.snapshots.storageClassName=fast")
    assert [fault for one in objects for fault in schema_faults(one)] == []
    for one in objects:
        if one.value["kind"] != "StatefulSet":
            continue
        (claim,) = one.value["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["resources"]["requests"] == {"storage": "20Gi"}
        assert claim["spec"]["storageClassName"] == "fast"
        (container,) = one.value["spec"]["template"]["spec"]["containers"]
        (mount,) = [each for each in container["volumeMounts"] if each["name"] == claim["metadata"]["name"]]
        assert {"name": "TSDB_SNAPSHOT_DIR", "value": mount["mountPath"]} in container["env"]
        assert not mount.get("readOnly")


def test_a_prefix_of_the_log_is_in_topics_and_rights() -> None:
    objects = template("--set", "security.enabled=true,config.log_prefix=Prod_")
    assert [fault for one in objects for fault in schema_faults(one)] == []
    topics = [one for one in objects if one.value["kind"] == "KafkaTopic"]
    assert sorted(one.value["spec"]["topicName"] for one in topics) == [
        f"Prod_{name}" for name in ("chunks", "chunks.dlq", "meta", "metadata", "metrics", "series")
    ]
    assert {one.name for one in topics} >= {"prod-metrics", "prod-chunks.dlq"}
    users = [one.value["spec"]["authorization"]["acls"] for one in objects if one.value["kind"] == "KafkaUser"]
    assert all(acl["resource"]["name"].startswith("Prod_") for acls in users for acl in acls)
    plain = template("--set", "security.enabled=true,config.log_prefix=prod.")
    assert {one.name for one in plain if one.value["kind"] == "KafkaTopic"} >= {"prod.metrics"}


def test_a_secured_log_is_at_the_port_that_its_network_policy_opens() -> None:
    objects = template("--set", "security.enabled=true,security.kafka.port=9094,security.kafka.namespace=strimzi")
    maps = [one.value["data"]["tsdb.toml"] for one in objects if "tsdb.toml" in one.value.get("data", {})]
    assert {tomllib.loads(text)["log"] for text in maps} == {"kafka://kafka-bootstrap.strimzi:9094"}
    other = template("--set", "security.enabled=true,security.cassandra.port=9142")
    maps = [one.value["data"]["tsdb.toml"] for one in other if "tsdb.toml" in one.value.get("data", {})]
    assert {tomllib.loads(text)["history"] for text in maps} == {"cassandra://cassandra.cassandra:9142/tsdb"}
    named = template("--set", "security.enabled=true,config.log=kafka://b1.example:9093\\,b2.example:9093")
    assert named


@pytest.mark.parametrize("sets", ["chunkStage=spark", "security.enabled=true", f"security.enabled=true,{SMALL}"])
def test_releases_in_two_namespaces_have_no_object_in_common(sets: str) -> None:
    one, other = (
        {(each.kind, each.namespace, each.name) for each in template("--set", sets, namespace=namespace)}
        for namespace in ("one", "two")
    )
    assert one & other == set()


def test_the_setup_job_has_another_name_when_it_differs() -> None:
    """A Job cannot change, and a tool that renders the chart knows no revision."""

    def job(*sets: str) -> Manifest:
        return next(one for one in template(*sets) if one.value["kind"] == "Job")

    first = job()
    assert first.name == job("--is-upgrade").name
    changes = ("image.tag=9.9.9", "setup.partitions=36", "config.log_level=debug", "security.enabled=true")
    names = {first.name, *(job("--set", change).name for change in changes)}
    assert len(names) == len(changes) + 1
    assert first.value["metadata"]["annotations"]["argocd.argoproj.io/hook-delete-policy"] == "BeforeHookCreation"


def test_a_hold_that_fits_the_memory_is_taken() -> None:
    assert template("--set", "expected.samplesPerSecond=80000", "--set", "expected.series=1000000")


def test_every_value_has_a_type_and_the_settings_are_known() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"].keys() - {"global"} == VALUES.keys()
    known = {field for settings in ROLES.values() for field in settings.model_fields}
    assert VALUES["config"].keys() <= known


def test_each_paragraph_of_the_values_begins_with_a_comment() -> None:
    """It is the text that `helm show values` prints."""
    text = (CHART / "values.yaml").read_text()
    undocumented = set(re.findall(r"\n\n(\w+):", text))
    assert undocumented == set()
    assert set(re.findall(r"^(\w+):", text, re.MULTILINE)) == VALUES.keys()
