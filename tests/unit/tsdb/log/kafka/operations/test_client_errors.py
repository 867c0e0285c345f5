"""Every error of the second Kafka client becomes one of ours, by the same table as the first one's."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from tsdb.log.kafka.operations import client  # First, since it imports the library without its warning.
from tsdb.model.errors import ConfigMismatch, TsdbError, Unavailable, WrongTopic

# isort: split
from kafka import errors

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


ABSENT = """
from tsdb.log.kafka.operations.client import open_client
from tsdb.log.settings import LogSettings
open_client("127.0.0.1:1", LogSettings(request_timeout_s=0.2))
"""


def test_brokers_that_do_not_answer_are_named() -> None:
    # A separate process, since the library leaves the sockets of refused connections to the garbage collector.
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1].startswith("tsdb.model.errors.Unavailable: brokers 127.0.0.1:1: ")
