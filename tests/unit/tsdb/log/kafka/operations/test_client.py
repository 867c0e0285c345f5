"""The second Kafka client has the settings of the first one, and its errors become ours by the same table."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tsdb.log.kafka.operations import client  # First, since it imports the library without its warning.
from tsdb.log.settings import KafkaSecurity, LogSettings
from tsdb.model.errors import ConfigMismatch, TsdbError, Unavailable, WrongTopic

# isort: split
from kafka import errors
from kafka.admin import KafkaAdminClient

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.KafkaError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_of_the_library_is_one_of_ours(kind: type[Exception]) -> None:
    with pytest.raises(TsdbError, match=r"^state of the cluster: "), client.translate_errors("state of the cluster"):
        raise kind.__new__(kind)


@pytest.mark.parametrize(
    ("error", "ours", "reason"),
    [
        (errors.UnknownTopicOrPartitionError(), WrongTopic, "unknown_topic"),
        (errors.ClusterAuthorizationFailedError(), Unavailable, "log_unauthorized"),
        (errors.KafkaTimeoutError("bootstrap"), Unavailable, "log_unavailable"),
        (errors.KafkaConfigurationError("ssl_cafile"), ConfigMismatch, "log_settings"),
    ],
    ids=lambda value: str(value),
)
def test_the_class_of_an_error_is_the_next_action(error: Exception, ours: type[TsdbError], reason: str) -> None:
    with pytest.raises(ours) as raised, client.translate_errors("here"):
        raise error
    assert raised.value.reason == reason


def test_tls_and_sasl_are_those_of_the_other_client_under_names_that_the_library_knows(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    security = KafkaSecurity(
        "SASL_SSL",
        "SCRAM-SHA-512",
        "ops",
        "",
        str(tmp_path / "password"),
        "ca.pem",
        "cert.pem",
        "key.pem",
        "passphrase",
    )
    found = client.client_settings("a:1,b:2", LogSettings(security=security, request_timeout_s=3.0))
    assert found == {
        "bootstrap_servers": ["a:1", "b:2"],
        "client_id": "tsdb",
        "request_timeout_ms": 3000,
        "bootstrap_timeout_ms": 3000,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ops",
        "sasl_plain_password": "secret",
        "ssl_cafile": "ca.pem",
        "ssl_certfile": "cert.pem",
        "ssl_keyfile": "key.pem",
        "ssl_password": "passphrase",
    }
    assert found.keys() <= KafkaAdminClient.DEFAULT_CONFIG.keys()


ABSENT = """
from tsdb.log.kafka.operations.client import open_client
from tsdb.log.settings import LogSettings
open_client("127.0.0.1:1", LogSettings(request_timeout_s=0.2))
"""


def test_brokers_that_do_not_answer_are_named() -> None:
    # A separate process, since the library leaves the sockets of refused connections to the garbage collector.
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1].startswith("tsdb.model.errors.Unavailable: brokers 127.0.0.1:1: ")
