"""The users of overlays/secure have enough rights on real Kafka and Cassandra, and no others: every role works with its
user from the first write to history, and what a user must not do is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cassandra
import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented there, not marked as exported
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from stack.cassandra import CassandraNode
from stack.kafka import KafkaCluster
from support.deploy_files import DEPLOY, KUBERNETES, overlays, parsed
from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json, tsdb_ok
from tsdb.client import WriteBatch, connect
from tsdb.log.open import open_log, open_topics
from tsdb.log.settings import KafkaSecurity, LogSettings
from tsdb.log.topics import create_topics, topic_specs
from tsdb.model.errors import TsdbError

pytestmark = pytest.mark.soak

PARTITIONS = 3
PASSWORD = "s3cret"
ROLES = ("gateway", "store", "chunker", "loader", "querier", "ruler")
USERS = [
    *(one for one in overlays()["overlays/secure-small"] if one.value["kind"] == "KafkaUser"),
    *parsed("ruler", (KUBERNETES / "components/secure-ruler/user.yaml").read_text()),
]
NAMES = {role: f"kafka-{'chunk-stage' if role == 'chunker' else role}" for role in (*ROLES, "setup")}
READY_WITHIN_S = 600.0  # Of six roles that start together on a busy machine.
LOADED_WITHIN_S = 300.0
LOGIN_WITHIN_S = 90.0

_LOGINS = " ".join(f'user_{name}="{PASSWORD}"' for name in ("admin", *(one.name for one in USERS)))
BROKER = {
    # Strimzi's users show certificates; names and passwords are enough to ask for rights.
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="admin" password="{PASSWORD}" {_LOGINS};'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller's listener has no users, and no client reaches it.
    "super.users": "User:admin;User:ANONYMOUS",
}
ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": PASSWORD,
}
NODE = "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n"


def security(user: str) -> LogSettings:
    return LogSettings(security=KafkaSecurity("SASL_PLAINTEXT", "PLAIN", user, PASSWORD))


def variables(role: str) -> dict[str, str]:
    """Environment of a role: its users of Kafka and Cassandra."""
    return {
        "TSDB_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "TSDB_KAFKA_SASL_MECHANISM": "PLAIN",
        "TSDB_KAFKA_SASL_USERNAME": NAMES[role],
        "TSDB_KAFKA_SASL_PASSWORD": PASSWORD,
        "TSDB_CASSANDRA_USERNAME": f"tsdb_{'querier' if role == 'ruler' else role}",
        "TSDB_CASSANDRA_PASSWORD": PASSWORD,
    }


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaCluster]:
    with KafkaCluster(settings=BROKER, client=ADMIN) as cluster:
        with open_topics(f"kafka://{cluster.bootstrap}", settings=security("admin")) as admin:
            create_topics(admin, topic_specs(PARTITIONS, replication=1))
        bindings = [binding for one in USERS for binding in _bindings(one.name, one.value)]
        client = AdminClient({"bootstrap.servers": cluster.bootstrap, **ADMIN})
        for answer in client.create_acls(bindings, request_timeout=30.0).values():
            answer.result()
        yield cluster


def _bindings(name: str, user: Mapping[str, Any]) -> Iterator[AclBinding]:
    for acl in user["spec"]["authorization"]["acls"]:
        resource = acl["resource"]
        for operation in acl["operations"]:
            yield AclBinding(
                ResourceType[resource["type"].upper()],
                resource["name"],
                ResourcePatternType.LITERAL,
                f"User:{name}",
                "*",
                AclOperation["DESCRIBE_CONFIGS" if operation == "DescribeConfigs" else operation.upper()],
                AclPermissionType.ALLOW,
            )


@pytest.fixture(scope="module")
def node() -> Iterator[CassandraNode]:
    """Create the roles of deploy/cassandra/roles.cql. One node has one copy of the data."""
    with CassandraNode(settings=NODE) as running:
        with _session(running, "cassandra", "cassandra") as session:
            text = (
                (DEPLOY / "cassandra/roles.cql")
                .read_text()
                .replace("'replication_factor': 3", "'replication_factor': 1")
            )
            lines = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
            for statement in filter(None, map(str.strip, lines.split(";"))):
                session.execute(statement, timeout=60)
            for role in ("setup", "loader", "querier", "spark"):
                session.execute(f"ALTER ROLE tsdb_{role} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true", timeout=60)
        yield running


@contextmanager
def _session(node: CassandraNode, user: str, password: str) -> Iterator[Session]:
    """A session of the driver. Cassandra makes its superuser some seconds after the start."""
    give_up_at = time.monotonic() + LOGIN_WITHIN_S
    while True:
        profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([node.host]))
        cluster = Cluster(
            [node.host],
            port=node.port,
            auth_provider=PlainTextAuthProvider(user, password),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            protocol_version=5,
        )
        try:
            session = cluster.connect()
            break
        except NoHostAvailable:
            cluster.shutdown()
            if time.monotonic() > give_up_at:
                raise
            time.sleep(1.0)  # Time between attempts. The login is the loop's condition.
    try:
        yield session
    finally:
        cluster.shutdown()


@pytest.mark.timeout(1_800)
def test_every_role_works_with_its_user(broker: KafkaCluster, node: CassandraNode, tmp_path: Path) -> None:
    log = ("--log", f"kafka://{broker.bootstrap}", "--time-set", "demo")
    history = ("--history", f"cassandra://{node.host}:{node.port}/tsdb")
    setup = variables("setup")
    _with(setup, "topics", "create", *log, "--partitions", str(PARTITIONS), "--replication", "1")
    _with(setup, "history", "create", *log[:2], *history, "--replication", "1")
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups: [{name: g, interval: 2s, rules: [{record: total, expr: count(m)}]}]\n")
    with ExitStack() as stack:
        roles: dict[str, Role] = {}
        for name in ROLES:
            more = history if name in ("loader", "querier", "ruler") else ()
            stores = ("--stores", roles["store"].grpc) if name in ("querier", "ruler") else ()
            files = ("--rules", str(rules), "--rules-grace-s", "2") if name == "ruler" else ()
            roles[name] = stack.push(Role(tmp_path, name, *log, *more, *stores, *files, env=variables(name)))
            roles[name].start(ready=False)
        for role in roles.values():
            role.wait_ready(READY_WITHIN_S)
        batch, written_ms = WriteBatch(), time.time_ns() // 1_000_000
        for number in range(50):
            batch.add({"__name__": "m", "job": "j", "instance": f"i{number}"}, written_ms, float(number))
        with connect(roles["gateway"].grpc, timeout_s=60.0) as client:
            client.write(batch)
        wait_until(lambda: _loaded(roles["loader"]) >= 50, LOADED_WITHIN_S, describe=lambda: roles["loader"].metrics())
        rows = tsdb_json("status", "--address", roles["querier"].grpc)
        assert {row.get("ready") for row in rows["partitions"]} == {True}
        with connect(roles["querier"].grpc, timeout_s=60.0) as client:
            assert client.select("m", written_ms, written_ms + 1).samples == 50
            end_ms = written_ms + 600_000
            wait_until(lambda: client.select("total", written_ms, end_ms).samples > 0, LOADED_WITHIN_S)
        for name, role in roles.items():
            assert "AUTHORIZATION" not in role.log_file.read_text().upper(), name
            assert role.terminate() == 0


def _loaded(loader: Role) -> float:
    return loader.metrics()['tsdb_loader_records_total{kind="chunk"}']


def _with(env: Mapping[str, str], *arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        tsdb_ok(*arguments)


@pytest.mark.parametrize(
    ("role", "topic"),
    [
        ("ruler", "meta"),
        ("ruler", "chunks"),
        ("store", "metrics"),
        ("querier", "meta"),
        ("gateway", "chunks"),
        ("loader", "chunks"),
        ("loader", "metrics"),
        ("setup", "metrics"),
    ],
)
def test_a_user_does_not_write_to_the_topics_of_others(broker: KafkaCluster, role: str, topic: str) -> None:
    # A user that may write to no topic gets no number of a producer, and its record is dropped from the queue.
    with (
        open_log(f"kafka://{broker.bootstrap}", settings=security(NAMES[role])) as log,
        pytest.raises(TsdbError, match=r"(?i)authoriz|purged"),
    ):
        log.append_sync(topic, 0, b"x", key=None if topic == "metrics" else b"k", timeout_s=10.0)


@pytest.mark.parametrize("role", ["querier", "spark"])
def test_readers_of_history_do_not_change_it(node: CassandraNode, role: str) -> None:
    with _session(node, f"tsdb_{role}", PASSWORD) as session:
        session.execute("SELECT * FROM tsdb.shared")
        with pytest.raises(cassandra.Unauthorized):
            session.execute("INSERT INTO tsdb.shared (name, value) VALUES ('a', 'b')")
        with pytest.raises(cassandra.Unauthorized):
            session.execute("TRUNCATE tsdb.chunks")


def test_loaders_write_rows_and_do_not_change_tables(node: CassandraNode) -> None:
    with _session(node, "tsdb_loader", PASSWORD) as session, pytest.raises(cassandra.Unauthorized):
        session.execute("DROP TABLE tsdb.chunks")
