"""Health of the topics of a log: replicas in sync, retention against outages, free space on disks, throttles that are
left. Pure.

Needed retention of `metrics` = hold + longest outage of the chunk stage + longest rebuild. A store replays the hold at
its start; a chunk stage continues after an outage where it stopped; a rebuild reads its range again until its end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tsdb.log.kafka.operations.refusals import DISK_RESERVE, duration, mib
from tsdb.log.kafka.operations.state import Cluster, PartitionReplicas
from tsdb.log.topics import Difference


@dataclass(frozen=True, slots=True)
class Needs:
    """Durations in ms that the log must cover together."""

    hold_ms: int
    outage_ms: int
    rebuild_ms: int

    @property
    def retention_ms(self) -> int:
        return self.hold_ms + self.outage_ms + self.rebuild_ms


def health(cluster: Cluster, topics: Sequence[str], log_topic: str, needs: Needs) -> list[Difference]:
    """Everything that is wrong with these topics, beyond their settings. log_topic: the name of `metrics` in Kafka."""
    partitions = cluster.of_topics(topics)
    found = [difference for one in partitions for difference in _in_sync(one, cluster)]
    for name in sorted(set(topics) & set(cluster.topics)):
        replicas = min((len(one.target) for one in cluster.of_topics([name])), default=0)
        min_isr = cluster.topics[name].min_isr
        if replicas > 1 and min_isr >= replicas:
            want = f"below the {replicas} replicas: one lost broker stops writes"
            found.append(Difference(name, "min.insync.replicas", str(min_isr), want))
    if log_topic in cluster.topics:
        found += [*_bytes_kept(cluster, log_topic, needs), *_disks(cluster, log_topic)]
    return found


def _in_sync(one: PartitionReplicas, cluster: Cluster) -> Iterator[Difference]:
    topic, name = cluster.topics[one.place.topic], f"partition {one.place.partition}"
    if len(one.in_sync) < topic.min_isr:
        want = f"{topic.min_isr} or more (min.insync.replicas): it refuses writes"
        yield Difference(topic.name, f"{name}: replicas in sync", str(len(one.in_sync)), want)
    elif len(one.in_sync) < len(one.target):
        yield Difference(topic.name, f"{name}: replicas in sync", str(len(one.in_sync)), str(len(one.target)))


def _bytes_kept(cluster: Cluster, log_topic: str, needs: Needs) -> Iterator[Difference]:
    limit = cluster.topics[log_topic].retention_bytes
    rate = max((cluster.write_rates.get(one.place, 0.0) for one in cluster.of_topics([log_topic])), default=0.0)
    needed = math.ceil(rate * needs.retention_ms / 1000)
    if limit is not None and limit < needed:
        want = f"-1, or {needed} or more: {duration(needs.retention_ms / 1000)} at the measured {mib(rate)}/s"
        yield Difference(log_topic, "retention.bytes", str(limit), want)


def _disks(cluster: Cluster, log_topic: str) -> Iterator[Difference]:
    retention_ms = cluster.topics[log_topic].retention_ms
    if retention_ms is None:
        return
    grows: Counter[int] = Counter()
    for one in cluster.of_topics([log_topic]):
        kept = cluster.write_rates.get(one.place, 0.0) * retention_ms / 1000
        for broker in one.target:
            grows[broker] += math.ceil(kept) - one.size_bytes
    for broker, growth in sorted(grows.items()):
        usable = cluster.brokers[broker].usable_bytes if broker in cluster.brokers else None
        if usable is not None and growth > usable * (1 - DISK_RESERVE):
            want = f"{mib(growth / (1 - DISK_RESERVE))} for {duration(retention_ms / 1000)} at the measured rate"
            yield Difference(log_topic, f"free disk of broker {broker}", mib(usable), want)
