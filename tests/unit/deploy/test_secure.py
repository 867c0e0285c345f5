"""overlays/secure: TLS and a token on every port, the least rights of each user, and networks without other callers."""

from __future__ import annotations

import os
import re
import tomllib
from typing import Any

import pytest
import yaml

from support.deploy_files import KUBERNETES, ROOT, Manifest, overlays, parsed, run_tool, schema_faults
from tsdb.config import ROLES
from tsdb.history.cassandra.tables import create_keyspace
from tsdb.log.topics import topic_specs

SECURED = {"overlays/secure": "overlays/spark", "overlays/secure-small": "overlays/small"}
OVERLAYS = overlays()
OBJECTS = OVERLAYS["overlays/secure"]
SERVERS = [one for one in OBJECTS if one.value["kind"] in ("Deployment", "StatefulSet")]
CHUNKER = next(
    one for one in OVERLAYS["overlays/secure-small"] if one.name == "chunker" and one.kind == "apps/v1/Deployment"
)
PARTITIONS = 18
# Names by which other roles call a role, where it is not the name of the role.
CALLED = {"querier": ["querier", "querier-pods"]}
by_server = pytest.mark.parametrize("server", [*SERVERS, CHUNKER], ids=[*(one.name for one in SERVERS), "chunker"])
by_overlay = pytest.mark.parametrize("overlay", SECURED)


def of_kind(kind: str) -> list[Manifest]:
    return [one for one in OBJECTS if one.value["kind"] == kind]


def role_of(server: Manifest) -> str:
    return str(server.value["spec"]["template"]["metadata"]["labels"]["role"])


def container_of(server: Manifest) -> dict[str, Any]:
    (container,) = server.value["spec"]["template"]["spec"]["containers"]
    return dict(container)


def variables_of(server: Manifest) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container_of(server)["env"] if "value" in one}


def secrets_of(value: Any) -> set[str]:
    """Names of Secrets that an object mounts or reads."""
    if isinstance(value, list):
        return {name for one in value for name in secrets_of(one)}
    if not isinstance(value, dict):
        return set()
    found = {value["secret"]["secretName"]} if "secret" in value else set()
    found |= {value["secretKeyRef"]["name"]} if "secretKeyRef" in value else set()
    return found | {name for one in value.values() for name in secrets_of(one)}


@by_server
def test_every_port_has_tls_and_needs_a_token_and_probes_ask_by_https(server: Manifest) -> None:
    variables, container = variables_of(server), container_of(server)
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    for name in ("TLS_CERT_FILE", "TLS_KEY_FILE", "TOKEN_FILE", "KAFKA_SSL_CA_FILE", "KAFKA_SSL_CERTIFICATE_FILE"):
        folder = variables[f"TSDB_{name}"].rpartition("/")[0]
        assert mounts[folder]["readOnly"], name
    assert variables["TSDB_KAFKA_SECURITY_PROTOCOL"] == "SSL"
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {probe["scheme"] for probe in probes} == {"HTTPS"}


@by_server
def test_the_variables_of_a_role_are_settings_that_it_takes_together(server: Manifest) -> None:
    settings = ROLES["chunker" if role_of(server) == "spark" else role_of(server)]
    given = {name.removeprefix("TSDB_").lower(): value for name, value in variables_of(server).items()}
    given = {name: value for name, value in given.items() if name in settings.model_fields}
    needed = {"log": "kafka://kafka:9093", "stores": "store:7410", "shard": "0/3"}
    del given["config"]
    settings.model_validate({**given, **{name: needed[name] for name in needed.keys() & settings.model_fields.keys()}})


@by_overlay
def test_certificates_have_the_names_by_which_roles_are_called(overlay: str) -> None:
    objects = OVERLAYS[overlay]
    certificates = {one.value["spec"]["secretName"]: one for one in objects if one.value["kind"] == "Certificate"}
    services = {(one.namespace, one.name) for one in objects if one.value["kind"] == "Service"}
    roles = {role_of(one) for one in objects if one.value["kind"] in ("Deployment", "StatefulSet")}
    for role in roles:
        certificate = certificates[f"{role}-tls"]
        names = CALLED.get(role, [role])
        expected = {f"{name}{end}" for name in names for end in ("", *_domains(certificate.namespace))}
        assert expected <= set(certificate.value["spec"]["dnsNames"])
        assert {(certificate.namespace, name) for name in names} <= services
        assert certificate.value["spec"]["issuerRef"] == {"name": "kafka-tsdb", "kind": "ClusterIssuer"}


def _domains(namespace: str) -> tuple[str, str]:
    return f".{namespace}", f".{namespace}.svc"


def test_every_secret_is_made_by_an_operator_or_named_in_the_document() -> None:
    made = {(one.namespace, one.value["spec"]["secretName"]) for one in of_kind("Certificate")}
    made |= {(one.namespace, one.name) for one in of_kind("KafkaUser")}
    named = set(
        re.findall(
            r"^\| `(kafka-tsdb(?:-spark)?)` \| `([\w-]+)` \|", (ROOT / "docs/deploy.md").read_text(), re.MULTILINE
        )
    )
    used = {
        (one.namespace, name) for one in OBJECTS if one.value["kind"] != "Certificate" for name in secrets_of(one.value)
    }
    spark = " ".join(container_of(next(one for one in SERVERS if one.name == "spark"))["args"])
    used |= {("kafka-tsdb-spark", name) for name in re.findall(r"executor\.secrets\.([\w-]+)=", spark)}
    assert used - made == named


def test_writers_and_readers_have_different_tokens() -> None:
    tokens = {
        role_of(one): volume["secret"]["secretName"]
        for one in SERVERS
        for volume in one.value["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "tokens"
    }
    assert tokens == {
        "gateway": "tokens-write",
        "store": "tokens-read",
        "querier": "tokens-read",
        "loader": "tokens-operate",
        "spark": "tokens-operate",
    }


def test_topics_are_those_that_the_command_makes() -> None:
    made = {one.name: one.value["spec"] for one in of_kind("KafkaTopic")}
    specs = {spec.name: spec for spec in topic_specs(PARTITIONS, replication=3)}
    assert made.keys() == specs.keys()
    for name, spec in specs.items():
        assert (made[name]["partitions"], made[name]["replicas"]) == (spec.partitions, spec.replication)
        wanted = {key: str(value) for key, value in {**spec.exact, **spec.least}.items()}
        assert {key: _text(value) for key, value in made[name]["config"].items()} == wanted


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_only_writers_of_a_topic_may_write_to_it() -> None:
    writers: dict[str, set[str]] = {}
    for user in of_kind("KafkaUser"):
        for acl in user.value["spec"]["authorization"]["acls"]:
            assert not {"All", "Delete", "Alter", "AlterConfigs"} & set(acl["operations"])
            assert user.name == "kafka-setup" or "Create" not in acl["operations"]
            assert acl["resource"]["type"] in ("topic", "group")
            if "Write" in acl["operations"]:
                writers.setdefault(acl["resource"]["name"], set()).add(user.name.removeprefix("kafka-"))
    assert writers == {
        "metrics": {"gateway", "chunk-stage"},
        "series": {"gateway", "chunk-stage"},
        "metadata": {"gateway"},
        "chunks": {"chunk-stage"},
        "chunks.dlq": {"loader"},
        "meta": {"chunk-stage", "loader", "setup"},
    }


def test_every_role_has_a_user_of_kafka_and_readers_of_history_another_one_of_cassandra() -> None:
    used = {role_of(one): {name for name in secrets_of(one.value) if name != "kafka-ca"} for one in SERVERS}
    kafka = {role: {name for name in names if name.startswith("kafka-")} for role, names in used.items()}
    assert kafka == {
        **{role: {f"kafka-{role}"} for role in ("gateway", "store", "loader", "querier")},
        "spark": {"kafka-chunk-stage"},
    }
    cassandra = {role: {name for name in names if name.startswith("cassandra-")} for role, names in used.items()}
    assert cassandra == {
        "gateway": set(),
        "store": set(),
        "loader": {"cassandra-loader"},
        "querier": {"cassandra-querier"},
        "spark": {"cassandra-spark"},
    }


def test_pods_are_closed_and_policies_open_only_ports_that_pods_have() -> None:
    policies = of_kind("NetworkPolicy")
    closed = {one.namespace for one in policies if one.value["spec"]["podSelector"] == {}}
    assert closed == {"kafka-tsdb", "kafka-tsdb-spark"}
    named = {"grpc", "http", 7410, 7411, 9093, 9042, 53, 443, 6443}
    for one in policies:
        rules = [*one.value["spec"].get("ingress", []), *one.value["spec"].get("egress", [])]
        assert {port["port"] for rule in rules for port in rule.get("ports", [])} <= named
        # An empty list of callers would mean all of them.
        assert all(rule.get("from") for rule in one.value["spec"].get("ingress", [])), str(one)


@pytest.mark.parametrize("role", ["gateway", "store", "loader", "querier"])
def test_callers_of_a_role_are_let_in(role: str) -> None:
    callers = {
        "gateway": {"kafka-tsdb-writers"},
        "store": {"querier", "gateway", "kafka-tsdb-spark"},
        "loader": {"gateway", "kafka-tsdb-spark"},
        "querier": {"kafka-tsdb-readers", "gateway", "kafka-tsdb-spark"},
    }[role]
    let_in = str([one.value["spec"]["ingress"] for one in of_kind("NetworkPolicy") if _selects(one.value, role)])
    assert {caller for caller in callers if caller not in let_in} == set()


def _selects(policy: dict[str, Any], role: str) -> bool:
    selector = policy["spec"]["podSelector"]
    values = [value for one in selector.get("matchExpressions", []) for value in one["values"]]
    return "ingress" in policy["spec"] and role in (*values, selector.get("matchLabels", {}).get("role"))


def test_roles_of_cassandra_have_the_grants_of_their_work() -> None:
    text = (ROOT / "deploy/cassandra/roles.cql").read_text()
    statements = [one.strip() for one in re.sub(r"^--.*$", "", text, flags=re.MULTILINE).split(";") if one.strip()]
    assert statements[0] == create_keyspace("tsdb", 3)
    grants: dict[str, set[str]] = {}
    for right, where, role in re.findall(r"GRANT (\w+) ON (.+?) TO (\w+)", text):
        grants.setdefault(role, set()).add(f"{right} {where}")
    own = "KEYSPACE tsdb"
    assert grants == {
        "tsdb_setup": {"CREATE ALL KEYSPACES", f"SELECT {own}", f"MODIFY {own}"},
        "tsdb_loader": {f"SELECT {own}", f"MODIFY {own}"},
        "tsdb_querier": {f"SELECT {own}"},
        "tsdb_spark": {f"SELECT {own}"},
    }
    # No password is in the file, so nobody can log in before one is set.
    assert "PASSWORD" not in text
    assert set(re.findall(r"LOGIN = (\w+)", text)) == {"false"}


@by_overlay
def test_the_rest_is_as_without_the_components(overlay: str) -> None:
    """So that a setting changed in the base reaches both."""
    objects, plain = OVERLAYS[overlay], OVERLAYS[SECURED[overlay]]
    ours = {(one.kind, one.namespace, one.name) for one in objects}
    rest = [one for one in plain if "tsdb.toml" not in one.value.get("data", {})]
    assert {(one.kind, one.namespace, one.name) for one in rest} <= ours
    for one in rest:
        if one.value["kind"] in ("Service", "ConfigMap", "PodDisruptionBudget", "HorizontalPodAutoscaler"):
            assert one.value in [each.value for each in objects]
    # The settings have another port of Kafka.
    settings = {one.value["data"]["tsdb.toml"] for one in plain if one not in rest}
    secured = {one.value["data"]["tsdb.toml"] for one in objects if "tsdb.toml" in one.value.get("data", {})}
    assert {text.replace(":9092", ":9093") for text in settings} == secured


COMPONENTS = {
    "secure-canary": ("canary", "Deployment"),
    "secure-jobs": ("downsample", "CronJob"),
    "secure-ruler": ("ruler", "Deployment"),
}


@pytest.fixture(scope="module")
def with_components(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """overlays/secure-small with its components, as an installation of a user."""
    folder = tmp_path_factory.mktemp("mine")
    resource = os.path.relpath(KUBERNETES / "overlays/secure-small", folder)
    components = [os.path.relpath(KUBERNETES / "components" / name, folder) for name in COMPONENTS]
    kustomization = {"resources": [resource], "components": components}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return parsed("mine", run_tool("kubectl", "kustomize", str(folder)))


def the(objects: list[Manifest], kind: str, name: str) -> Manifest:
    return next(one for one in objects if one.value["kind"] == kind and one.name == name)


def test_components_over_a_secured_overlay_are_valid(with_components: list[Manifest]) -> None:
    assert [fault for one in with_components for fault in schema_faults(one)] == []


def test_a_canary_of_a_secured_installation_has_tls_and_tokens_and_no_user(with_components: list[Manifest]) -> None:
    canary = the(with_components, "Deployment", "canary")
    variables, container = variables_of(canary), container_of(canary)
    given = {name.removeprefix("TSDB_").lower(): value for name, value in variables.items()}
    assert given.keys() <= {*ROLES["canary"].model_fields, "config"}
    del given["config"]
    settings = ROLES["canary"].model_validate({**given, "gateway": "gateway:7410", "querier": "querier:7410"})
    assert settings.model_dump()["target_tls"] is True
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    files = [value for name, value in given.items() if name.endswith("_file")]
    assert len(files) == 6
    assert {file.rpartition("/")[0] for file in files} <= mounts
    assert not any("KAFKA" in name or "CASSANDRA" in name for name in variables)
    assert {container[f"{name}Probe"]["httpGet"]["scheme"] for name in ("startup", "liveness", "readiness")} == {
        "HTTPS"
    }
    assert secrets_of(canary.value) == {"canary-tls", "tokens-canary"}
    assert the(with_components, "Certificate", "canary").value["spec"]["secretName"] == "canary-tls"
    policy = the(with_components, "NetworkPolicy", "canary").value["spec"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": {"app": "kafka-tsdb", "role": "canary"}}}]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_ruler_of_a_secured_installation_has_tls_tokens_and_the_rights_of_its_work(
    with_components: list[Manifest],
) -> None:
    ruler = the(with_components, "Deployment", "ruler")
    variables, container = variables_of(ruler), container_of(ruler)
    given = {name.removeprefix("TSDB_").lower(): value for name, value in variables.items()}
    del given["config"]
    settings = ROLES["ruler"].model_validate({**given, "log": "kafka://kafka:9093", "stores": "store:7410"})
    assert settings.model_dump()["store_tls"] is True
    mounts = {mount["mountPath"] for mount in container["volumeMounts"] if mount.get("readOnly")}
    files = [value for name, value in given.items() if name.endswith("_file")]
    assert len(files) == 10
    assert {file.rpartition("/")[0] for file in files} <= mounts
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {probe["scheme"] for probe in probes} == {"HTTPS"}
    # No Secret beside those of other roles.
    assert secrets_of(ruler.value) == {"ruler-tls", "tokens-read", "kafka-ruler", "kafka-ca", "cassandra-querier"}
    assert "ruler.kafka-tsdb.svc" in the(with_components, "Certificate", "ruler").value["spec"]["dnsNames"]
    acls = the(with_components, "KafkaUser", "kafka-ruler").value["spec"]["authorization"]["acls"]
    may = {
        right: {one["resource"]["name"] for one in acls if right in one["operations"]}
        for right in ("Write", "Read", "Create")
    }
    assert may == {
        "Write": {"metrics", "series", "metadata"},
        "Read": {"metrics", "chunks", "meta", "metadata", "rulers"},
        "Create": set(),
    }


@pytest.mark.parametrize(("role", "port"), [("store", "grpc"), ("store", "http"), ("loader", "http")])
def test_a_ruler_reaches_the_roles_that_it_calls(with_components: list[Manifest], role: str, port: str) -> None:
    ruler = {"podSelector": {"matchLabels": {"app": "kafka-tsdb", "role": "ruler"}}}
    policies = [one.value for one in with_components if one.value["kind"] == "NetworkPolicy"]
    rules = [rule for one in policies if _selects(one, role) for rule in one["spec"]["ingress"]]
    assert [rule for rule in rules if ruler in rule["from"] and {"port": port} in rule["ports"]]


def test_a_ruler_reaches_history_and_alertmanagers_and_readers_reach_it(with_components: list[Manifest]) -> None:
    policy = the(with_components, "NetworkPolicy", "ruler").value["spec"]
    assert [(port["port"]) for rule in policy["egress"] for port in rule["ports"]] == [9042, 9093]
    assert {"namespaceSelector": {"matchLabels": {"kafka-tsdb-readers": "true"}}} in policy["ingress"][0]["from"]


@pytest.mark.parametrize("name", ["downsample", "merge-late", "verify"])
def test_jobs_of_a_secured_installation_have_users_and_reach_history(
    with_components: list[Manifest], name: str
) -> None:
    pod = the(with_components, "CronJob", name).value["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["TSDB_KAFKA_SECURITY_PROTOCOL"] == "SSL"
    folders = {mount["mountPath"] for mount in container["volumeMounts"] if mount["readOnly"]}
    files = [value for key, value in variables.items() if key.endswith("_FILE") and value]
    assert len(files) == 5
    assert {file.rpartition("/")[0] for file in files} <= folders
    assert "TSDB_CASSANDRA_USERNAME" in variables
    assert secrets_of(pod) == {"kafka-chunk-stage", "kafka-ca", "cassandra-spark"}
    assert the(with_components, "KafkaUser", "kafka-chunk-stage").namespace == "kafka-tsdb"
    policy = the(with_components, "NetworkPolicy", "jobs").value["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["egress"][0]["ports"] == [{"port": 9042}]


def test_the_secrets_of_components_are_named_in_the_document() -> None:
    text = (ROOT / "docs/deploy.md").read_text()
    named = re.findall(r"^\| `(secure-[a-z]+)` \| `([\w-]+)` \|", text, re.MULTILINE)
    assert named == [("secure-canary", "tokens-canary"), ("secure-jobs", "cassandra-spark")]


@by_overlay
def test_the_log_is_at_the_port_that_the_networks_open(overlay: str) -> None:
    maps = [one.value["data"] for one in OVERLAYS[overlay] if one.value["kind"] == "ConfigMap"]
    logs = {tomllib.loads(data["tsdb.toml"])["log"] for data in maps if "tsdb.toml" in data}
    assert logs == {"kafka://kafka-bootstrap.kafka:9093"}
    out = the(OVERLAYS[overlay], "NetworkPolicy", "out").value["spec"]["egress"]
    assert {"port": 9093} in [port for rule in out for port in rule["ports"]]
