"""overlays/secure: TLS and a token on every port, the least rights of each user, and networks without other callers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.deploy_files import ROOT, Manifest, overlays
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
CALLED = {"querier": ["querier", "querier-pods"]}  # Names by which others call a role; otherwise its own.
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
        "meta": {"chunk-stage", "setup"},
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
    assert {(one.kind, one.namespace, one.name) for one in plain} <= ours
    for one in plain:
        if one.value["kind"] in ("Service", "ConfigMap", "PodDisruptionBudget", "HorizontalPodAutoscaler"):
            assert one.value in [each.value for each in objects]
