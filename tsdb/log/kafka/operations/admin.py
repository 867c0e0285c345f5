"""Operations use this to read and change a cluster: state, sizes, reassignments, elections, settings. One thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tsdb.log.kafka.operations.client import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    TopicPartition,
    code_error,
    open_client,
    translate_errors,
)
from tsdb.log.kafka.operations.state import Broker, Cluster, PartitionId, PartitionReplicas, Replicas, Topic
from tsdb.log.settings import LogSettings
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable

Sizes = Mapping[tuple[PartitionId, int], int]  # Bytes of a replica, by (partition, broker).

PREFERRED = 0  # The election that makes the first replica the leader.
TOPIC_SETTINGS = ("min.insync.replicas", "retention.ms", "retention.bytes")
NO_REASSIGNMENT = 85  # Kafka's code for the cancellation of a reassignment that has ended.


class ClusterAdmin:
    """A connection to a cluster. A context manager. Raises Unavailable when brokers do not answer."""

    def __init__(self, bootstrap: str, settings: LogSettings, clock: Clock) -> None:
        self._client = open_client(bootstrap, settings)
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to all brokers."""
        self._client.close()

    def cluster(self, *, measure_s: float = 0.0) -> Cluster:
        """The state now. measure_s: time between two looks at the sizes, for the rates of producers; 0: no rates."""
        with translate_errors("state of the cluster"):
            described = self._client.describe_cluster()
            topics = self._client.describe_topics()
            running = self._client.list_partition_reassignments()
        live = {row["broker_id"]: row["rack"] for row in described["brokers"] if not row.get("is_fenced")}
        sizes, usable = self._log_dirs(live)
        partitions = {
            one.place: one
            for topic in topics
            for row in topic["partitions"]
            for one in [_partition(topic["name"], row, running, sizes)]
        }
        rates: dict[PartitionId, float] = {}
        if measure_s:
            self._clock.sleep(measure_s)
            later, _ = self._log_dirs(live)
            rates = {place: _growth(one, sizes, later) / measure_s for place, one in partitions.items()}
        return Cluster(
            described["cluster_id"],
            {broker: Broker(broker, rack, usable.get(broker)) for broker, rack in live.items()},
            {topic["name"]: self._topic(topic["name"], found) for topic, found in self._settings(topics)},
            partitions,
            rates,
        )

    def live_brokers(self) -> set[int]:
        """Ids of the brokers that the controller takes for alive."""
        with translate_errors("brokers of the cluster"):
            described = self._client.describe_cluster()
        return {row["broker_id"] for row in described["brokers"] if not row.get("is_fenced")}

    def running(self) -> dict[PartitionId, Replicas]:
        """The running reassignments, each with its final replicas."""
        with translate_errors("reassignments"):
            found = self._client.list_partition_reassignments()
        return {
            PartitionId(where.topic, where.partition): tuple(
                broker for broker in change["replicas"] if broker not in change["removing_replicas"]
            )
            for where, change in found.items()
        }

    def replica_sizes(self, brokers: Iterable[int]) -> Sizes:
        """Bytes of each replica on these brokers."""
        return self._log_dirs(brokers)[0]

    def reassign(self, replicas: Mapping[PartitionId, Replicas]) -> None:
        """Start reassignments. Raises the error of the first refused partition; the others may have started."""
        self._alter_reassignments(dict(replicas), "reassignment")

    def cancel(self, places: Iterable[PartitionId]) -> None:
        """Cancel reassignments: old replicas stay, perhaps in another order. An ended reassignment is not an error."""
        self._alter_reassignments(dict.fromkeys(places), "cancellation", ended=NO_REASSIGNMENT)

    def elect_preferred(self, places: Iterable[PartitionId]) -> None:
        """Make the first replica of each partition its leader, where that replica is in sync."""
        wanted: dict[str, list[int]] = defaultdict(list)
        for place in places:
            wanted[place.topic].append(place.partition)
        with translate_errors("leader election"):
            # An error of one partition shows in the next state, which has another leader.
            self._client.elect_leaders(PREFERRED, dict(wanted), raise_errors=False)

    def settings(self, kind: str, names: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        """Values of these keys for topics or brokers, if they are set. kind: "topic" or "broker". Defaults are left
        out."""
        resources = [ConfigResource(ConfigResourceType[kind.upper()], name, list(keys)) for name in names]
        with translate_errors(f"settings of {kind} {', '.join(names)}"):
            found = self._client.describe_configs(resources, config_filter="modified") if resources else {}
        return {
            name: {key: str(row["value"]) for key, row in entries.items() if row["value"]}
            for name, entries in found.get(kind, {}).items()
        }

    def change_settings(self, kind: str, name: str, values: Mapping[str, str | None]) -> None:
        """Set values of a topic or broker; None removes the setting. Other settings stay."""
        changes = {key: (AlterConfigOp.DELETE, None) if value is None else value for key, value in values.items()}
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, changes)
        where = f"settings of {kind} {name}"
        with translate_errors(where):
            answer = self._client.alter_configs([resource], raise_on_unknown=False, incremental=True)
        if answer[kind][name] != "OK":
            raise Unavailable(f"{where}: {answer[kind][name]}", reason="log_error")

    def _alter_reassignments(
        self, replicas: Mapping[PartitionId, Replicas | None], what: str, *, ended: int | None = None
    ) -> None:
        if not replicas:
            return
        wanted = {TopicPartition(*place): brokers for place, brokers in replicas.items()}
        with translate_errors(what):
            answers = self._client.alter_partition_reassignments(wanted)
        for where, error in answers.items():
            if error is not None and error.errno != ended:
                raise code_error(error.errno, f"{what} of {where.topic}-{where.partition}")

    def _log_dirs(self, brokers: Iterable[int]) -> tuple[dict[tuple[PartitionId, int], int], dict[int, int]]:
        """Bytes of each replica, and free bytes of each broker that tells them."""
        sizes: dict[tuple[PartitionId, int], int] = {}
        usable: dict[int, int] = {}
        for broker in brokers:
            with translate_errors(f"log directories of broker {broker}"):
                (answer,) = self._client.describe_log_dirs(brokers=[broker])
            for folder in answer["log_dirs"]:
                if (folder.get("usable_bytes") or -1) >= 0:
                    usable[broker] = usable.get(broker, 0) + folder["usable_bytes"]
                for topic in folder["topics"]:
                    for row in topic["partitions"]:
                        if not row["is_future_key"]:  # The row is a copy that moves to another disk of the same broker.
                            sizes[PartitionId(topic["name"], row["partition_index"]), broker] = row["partition_size"]
        return sizes, usable

    def _settings(self, topics: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic["name"], list(TOPIC_SETTINGS)) for topic in topics]
        with translate_errors("settings of topics"):
            found = self._client.describe_configs(resources, config_filter="all") if resources else {}
        return [(topic, found["topic"].get(topic["name"], {})) for topic in topics]

    @staticmethod
    def _topic(name: str, settings: dict[str, Any]) -> Topic:
        values = {key: int(row["value"]) for key, row in settings.items() if row["value"]}
        if "min.insync.replicas" not in values:
            raise Unavailable(
                f"topic {name}: its settings cannot be read; the user needs DESCRIBE_CONFIGS of all topics",
                reason="log_unauthorized",
            )
        limits = [values.get(key, -1) for key in TOPIC_SETTINGS[1:]]
        return Topic(name, values["min.insync.replicas"], *(None if limit < 0 else limit for limit in limits))


def _partition(
    topic: str, row: dict[str, Any], running: Mapping[Any, dict[str, Any]], sizes: Sizes
) -> PartitionReplicas:
    place = PartitionId(topic, row["partition_index"])
    change = running.get(TopicPartition(*place), {})
    leader = row["leader_id"] if row["leader_id"] >= 0 else None
    known = [sizes[place, broker] for broker in row["isr_nodes"] if (place, broker) in sizes]
    if leader is not None and not known:
        raise Unavailable(
            f"{place}: no broker tells its size; the user needs DESCRIBE of the cluster, and a disk may be offline",
            reason="unknown_size",
        )
    return PartitionReplicas(
        place,
        # The controller lists reassignments; the metadata of a broker may be older.
        tuple(change.get("replicas", row["replica_nodes"])),
        leader,
        frozenset(row["isr_nodes"]),
        max(known, default=0),
        tuple(change.get("adding_replicas", ())),
        tuple(change.get("removing_replicas", ())),
    )


def _growth(partition: PartitionReplicas, before: Sizes, after: Sizes) -> int:
    """Bytes that a replica in sync has grown; deleted segments hide growth, so the largest of the replicas counts."""
    keys = [(partition.place, broker) for broker in partition.in_sync]
    return max((after[key] - before[key] for key in keys if key in before and key in after), default=0)
