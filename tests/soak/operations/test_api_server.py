"""A real kube-apiserver takes every object of deploy/ without a warning, and refuses what contradicts itself.

The server is of the newest release that docs/deploy.md names. Pod Security is at work: namespaces enforce `restricted`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import yaml

from support.deploy_files import DEPLOY, JOBS, KUBERNETES, Manifest, overlays, parsed, rendered, run_tool
from support.kubernetes.api_server import ApiServer, Done

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

CHART = DEPLOY / "helm/kafka-tsdb"
COMPONENTS = {name: KUBERNETES / "components" / name for name in ("canary", "tables")} | {"jobs": JOBS}
# Kinds of operators. Their definitions are not part of Kubernetes, and no registry of packages has them.
OPERATORS = {
    "cert-manager.io/v1/Certificate",
    "cert-manager.io/v1/ClusterIssuer",
    "kafka.strimzi.io/v1/KafkaTopic",
    "kafka.strimzi.io/v1/KafkaUser",
    "sparkoperator.k8s.io/v1beta2/SparkApplication",
}
ENGINES = {"spark": [], "spark-operator": [], "chunker": ["--set", "store.zones=preferred"]}
OVERLAYS = overlays()
by_overlay = pytest.mark.parametrize("overlay", OVERLAYS, ids=[name or "default" for name in OVERLAYS])
by_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.create_namespaces(OVERLAYS[""])
        yield running


def known(objects: Sequence[Manifest]) -> list[Manifest]:
    """The objects of Kubernetes itself, without the kinds of operators."""
    return [one for one in objects if one.kind not in OPERATORS]


def chart(engine: str, *more: str) -> list[str]:
    return [
        "kafka-tsdb",
        str(CHART),
        "--namespace",
        "kafka-tsdb",
        "--set",
        f"chunkStage={engine}",
        *ENGINES[engine],
        *more,
    ]


def check_taken(done: Done, count: int) -> None:
    assert (done.code, done.warnings) == (0, []), done.err
    assert len(done.out.splitlines()) == count, done.out


def test_only_kinds_of_operators_are_unknown_to_the_server(server: ApiServer) -> None:
    ours = {one.kind for objects in OVERLAYS.values() for one in objects}
    assert ours - server.kinds() == OPERATORS & ours


@by_overlay
def test_the_server_takes_every_object_of_an_overlay_without_a_warning(server: ApiServer, overlay: str) -> None:
    objects = known(OVERLAYS[overlay])
    check_taken(server.apply(objects, trial=True), len(objects))


@by_engine
def test_the_server_takes_every_object_of_the_chart_without_a_warning(server: ApiServer, engine: str) -> None:
    objects = known(parsed("helm", run_tool("helm", "template", *chart(engine, "--set", "namespace.create=true"))))
    check_taken(server.apply(objects, trial=True), len(objects))


@pytest.mark.parametrize("security", ["false", "true"])
def test_the_server_takes_the_rulers_of_the_chart(server: ApiServer, security: str) -> None:
    rules = ("--set-file", f"ruler.files.rules\\.yaml={KUBERNETES / 'components/ruler/rules.yaml'}")
    more = ("--set", "namespace.create=true", "--set", f"security.enabled={security}", "--set", "ruler.enabled=true")
    objects = known(parsed("helm", run_tool("helm", "template", *chart("chunker", *more, *rules))))
    assert "ruler" in {one.name for one in objects if one.value["kind"] == "Deployment"}
    check_taken(server.apply(objects, trial=True), len(objects))
    pods = [pod for one in objects if one.name == "ruler" and (pod := pod_of(one)) is not None]
    check_taken(server.apply(pods, trial=True), 1)


@pytest.mark.parametrize("name", COMPONENTS)
def test_the_server_takes_the_components_that_are_in_no_overlay(server: ApiServer, name: str) -> None:
    objects = [
        Manifest(one.file, {**one.value, "metadata": {"namespace": "kafka-tsdb", **one.value["metadata"]}})
        for one in rendered(COMPONENTS[name])
    ]
    check_taken(server.apply(objects, trial=True), len(objects))


def pod_of(one: Manifest) -> Manifest | None:
    """A pod as the controller of the object would create it."""
    spec = one.value.get("spec", {})
    template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
    if template is None:
        return None
    metadata = {"name": one.name, "namespace": one.namespace, "labels": template["metadata"].get("labels", {})}
    return Manifest(str(one), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


@by_overlay
def test_namespaces_of_the_level_restricted_take_every_pod(server: ApiServer, overlay: str) -> None:
    pods = [pod for one in OVERLAYS[overlay] if (pod := pod_of(one)) is not None]
    assert pods
    check_taken(server.apply(pods, trial=True), len(pods))


Spec = dict[str, Any]


def _object(kind: str, name: str) -> Manifest:
    return next(one for one in OVERLAYS[""] if one.value["kind"] == kind and one.name == name)


def _processes_of_the_host(spec: Spec) -> None:
    spec["hostPID"] = True


def _as_root(spec: Spec) -> None:
    spec["securityContext"]["runAsNonRoot"] = False


def _other_selector(spec: Spec) -> None:
    spec["selector"]["matchLabels"]["role"] = "other"


def _no_room_to_roll(spec: Spec) -> None:
    spec["strategy"]["rollingUpdate"] = {"maxSurge": 0, "maxUnavailable": 0}


def _fewer_than_the_least(spec: Spec) -> None:
    spec["maxReplicas"] = spec["minReplicas"] - 1


def _two_budgets(spec: Spec) -> None:
    spec["minAvailable"] = 1


def _memory_below_the_request(spec: Spec) -> None:
    spec["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Mi"


def _unknown_field(spec: Spec) -> None:
    spec["minReadySecond"] = 45


def _mount_without_a_volume(spec: Spec) -> None:
    spec["template"]["spec"]["volumes"] = spec["template"]["spec"]["volumes"][1:]


@pytest.mark.parametrize(
    ("kind", "name", "change", "named"),
    [
        ("Deployment", "gateway", _other_selector, "`selector` does not match template `labels`"),
        ("Deployment", "gateway", _no_room_to_roll, "may not be 0 when `maxSurge` is 0"),
        ("HorizontalPodAutoscaler", "querier", _fewer_than_the_least, "must be greater than or equal to `minReplicas`"),
        ("PodDisruptionBudget", "querier", _two_budgets, "cannot be both set"),
        ("StatefulSet", "store-0", _memory_below_the_request, "must be less than or equal to memory limit"),
        ("StatefulSet", "store-0", _unknown_field, 'unknown field "spec.minReadySecond"'),
        ("StatefulSet", "store-0", _mount_without_a_volume, "volumeMounts[0].name: Not found"),
    ],
)
def test_objects_that_contradict_themselves_are_refused(
    server: ApiServer, kind: str, name: str, change: Callable[[Spec], None], named: str
) -> None:
    value = copy.deepcopy(_object(kind, name).value)
    change(value["spec"])
    done = server.apply([Manifest("changed", value)], trial=True)
    assert done.code != 0
    assert named in done.err


@pytest.mark.parametrize(
    ("change", "named"), [(_processes_of_the_host, "hostPID=true"), (_as_root, "runAsNonRoot != true")]
)
def test_pods_above_the_level_restricted_are_refused(
    server: ApiServer, change: Callable[[Spec], None], named: str
) -> None:
    pod = pod_of(_object("Deployment", "gateway"))
    assert pod is not None
    value = copy.deepcopy(pod.value)
    change(value["spec"])
    done = server.apply([Manifest("changed", value)], trial=True)
    assert done.code != 0
    assert "violates PodSecurity" in done.err
    assert named in done.err


def test_an_upgrade_changes_an_installed_overlay_once_the_job_is_deleted(server: ApiServer) -> None:
    """Changes the image as docs/deploy.md describes it: `kubectl delete job setup`, then `kubectl apply`."""
    objects = known(OVERLAYS["overlays/small"])
    check_taken(server.apply(objects), len(objects))
    newer = [Manifest(one.file, _with_tag(one.value, "9.9.9")) for one in objects]
    refused = server.apply(newer, trial=True)
    assert "field is immutable" in refused.err
    done = server.kubectl("-n", "kafka-tsdb", "delete", "job", "setup")
    assert done.code == 0, done.err
    check_taken(server.apply(newer), len(newer))
    images = json.loads(server.kubectl("-n", "kafka-tsdb", "get", "statefulset", "store-0", "-o", "json").out)
    assert images["spec"]["template"]["spec"]["containers"][0]["image"] == "kafka-tsdb:9.9.9"


def test_helm_installs_upgrades_and_goes_back(server: ApiServer) -> None:
    place = ("kafka-tsdb", "--namespace", "by-helm")
    more = ("--set", "chunkStage=chunker", *ENGINES["chunker"])
    steps = [
        ("install", *place[:1], str(CHART), *place[1:], "--create-namespace", *more),
        ("upgrade", *place[:1], str(CHART), *place[1:], *more, "--set", "image.tag=9.9.9"),
        ("rollback", *place[:1], "1", *place[1:]),
    ]
    for step, tag in zip(steps, ("0.1.0", "9.9.9", "0.1.0"), strict=True):
        done = server.helm(*step)
        assert (done.code, done.warnings) == (0, []), done.err
        found = server.kubectl("-n", "by-helm", "get", "statefulset", "store-0", "-o", "json").out
        assert json.loads(found)["spec"]["template"]["spec"]["containers"][0]["image"] == f"kafka-tsdb:{tag}"


def test_a_second_release_in_a_namespace_is_refused_by_name(server: ApiServer) -> None:
    """Helm itself names the first object that it cannot adopt."""
    more = ("--namespace", "twice", "--set", "chunkStage=chunker", *ENGINES["chunker"])
    done = server.helm("install", "first", str(CHART), "--create-namespace", *more)
    assert done.code == 0, done.err
    refused = server.helm("install", "second", str(CHART), *more)
    assert refused.code != 0
    assert "namespace twice has release first already" in refused.err
    assert server.helm("upgrade", "first", str(CHART), *more).code == 0


def _with_tag(value: dict[str, Any], tag: str) -> dict[str, Any]:
    changed: dict[str, Any] = yaml.safe_load(yaml.safe_dump(value).replace("kafka-tsdb:0.1.0", f"kafka-tsdb:{tag}"))
    return changed
