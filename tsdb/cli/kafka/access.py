"""Opens the Kafka cluster of a log, and has the options that the commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, duration
from tsdb.config import CommonSettings
from tsdb.log.topics import topic_specs

if TYPE_CHECKING:
    from tsdb.log.kafka.operations.admin import ClusterAdmin
    from tsdb.log.kafka.operations.state import Cluster

MIB = 1 << 20

# Settings of the connection to the brokers.
ACCESS_SETTINGS = (
    *("config", "log", "log_prefix"),
    *(name for name in CommonSettings.model_fields if name.startswith("kafka_")),
)

Measure = Annotated[
    Milliseconds,
    typer.Option(
        "--measure",
        parser=duration,
        metavar="DURATION",
        help="Measure over this time the bytes that producers write.",
    ),
]


@contextmanager
def opened_cluster(settings: CommonSettings) -> Iterator[ClusterAdmin]:
    """The cluster of the log; closed after the block. Raises ConfigMismatch (log_url) for an embedded log."""
    # Imported here: help pages do without Kafka's clients.
    from tsdb.log.kafka.operations.admin import ClusterAdmin
    from tsdb.log.open import kafka_brokers
    from tsdb.model.clock import SystemClock
    from tsdb.roles.log import log_settings

    with ClusterAdmin(kafka_brokers(settings.log), log_settings(settings), SystemClock()) as admin:
        yield admin


def log_topics(settings: CommonSettings) -> list[str]:
    """The names in Kafka of all topics of a log."""
    return [settings.log_prefix + spec.name for spec in topic_specs(1)]


def chosen_topics(settings: CommonSettings, cluster: Cluster, topics: list[str], every: bool) -> list[str]:
    """The names in Kafka of the given topics. By default all topics of the log that exist, or all topics of the
    cluster."""
    if every:
        return sorted(cluster.topics)
    if topics:
        return [settings.log_prefix + topic for topic in topics]
    own = log_topics(settings)
    return [name for name in own if name in cluster.topics] or own[:1]
