"""Disks and throughput of a plan: computes those of topics in Kafka and of tables in Cassandra."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tsdb.cli.plan import figures
from tsdb.cli.plan.load import Load
from tsdb.cli.plan.roles import LOG_READS_OF_SPARK, on_spark
from tsdb.log.topics import topic_specs
from tsdb.model.window import EPOCH_MS

DISK_FILL = 0.6  # Compaction, segments that wait for their deletion, and the days until a disk is added.
COMPACTED = 2.0  # A compacted topic has up to as many bytes again that its cleaner has not reached.


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of one topic or of history, replicas included, and how long they are kept."""

    name: str
    kept_ms: int
    bytes: float


@dataclass(frozen=True, slots=True)
class StorageSizes:
    """topics, history: bytes on all disks, of which they are a part of `DISK_FILL`. Rates are those of all brokers."""

    topics: list[Stored]
    history: Stored
    broker_disk_bytes: int
    node_disk_bytes: int
    written_bytes_s: float
    copied_bytes_s: float
    read_bytes_s: float
    broker_busy_cores: float


def storage(load: Load) -> StorageSizes:
    """Disks of brokers and of nodes, and what flows through the brokers."""
    topics = _topics(load)
    log_s = load.rate * figures.LOG_BYTES.value
    chunks_s = load.rate * _chunk_bytes(load)
    written = log_s + chunks_s
    # Readers of the log are the chunk stage and the stores; a loader reads chunks.
    read = log_s * (load.replicas + (LOG_READS_OF_SPARK if on_spark(load) else 1)) + chunks_s
    history_bytes = load.rate * load.retention_ms / 1000 * (load.sample_bytes or figures.CASSANDRA_BYTES.value)
    history = Stored("history", load.retention_ms, history_bytes * load.cassandra_replication)
    return StorageSizes(
        topics=topics,
        history=history,
        broker_disk_bytes=math.ceil(sum(topic.bytes for topic in topics) / load.brokers / DISK_FILL),
        node_disk_bytes=math.ceil(history.bytes / load.nodes / DISK_FILL),
        written_bytes_s=written,
        copied_bytes_s=written * (load.kafka_replication - 1),
        read_bytes_s=read,
        broker_busy_cores=load.rate * figures.BROKER_CPU_S.value * load.kafka_replication,
    )


def _topics(load: Load) -> list[Stored]:
    specs = {spec.name: spec for spec in topic_specs(1, retention_ms=load.log_retention_ms)}
    kept = {name: spec.least.get("retention.ms", 0) for name, spec in specs.items()}
    epochs = kept["series"] // EPOCH_MS + 1
    sizes = {
        "metrics": load.rate * kept["metrics"] / 1000 * figures.LOG_BYTES.value,
        "chunks": load.rate * kept["chunks"] / 1000 * _chunk_bytes(load),
        "series": load.series * epochs * figures.SERIES_BYTES.value * COMPACTED,
    }
    return [Stored(name, kept[name], size * load.kafka_replication) for name, size in sizes.items()]


def _chunk_bytes(load: Load) -> float:
    return load.sample_bytes or figures.CHUNK_BYTES.value
