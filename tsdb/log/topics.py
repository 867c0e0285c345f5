"""Topics: the required settings of each, their creation, and a list of all settings that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, META, METADATA, METRICS, SERIES
from tsdb.model.errors import ConfigMismatch
from tsdb.model.time_set import TimeSet

DAY_MS = 24 * 3600 * 1000
REPLICATION = 3
RECORD_BYTES_MAX = 2 * 1024 * 1024  # The clients' limit. A broker's default limit is a little below the largest record.
# Compaction could remove a covered chunk before a loader has read it. The lag is above the longest loader outage.
CHUNKS_COMPACTION_LAG_MS = 7 * DAY_MS
OUTAGE_MS = DAY_MS
LOG_APPEND_TIME = "LogAppendTime"
CREATE_TIME = "CreateTime"
TOPIC = "topic"  # The setting of a difference when the topic itself is missing.


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Required settings of a topic. exact: values must be equal. least: values must be equal or higher; -1 means no
    limit."""

    name: str
    partitions: int
    replication: int
    exact: Mapping[str, str]
    least: Mapping[str, int] = field(default_factory=dict)

    def config(self) -> dict[str, str]:
        """All settings for the creation of the topic."""
        return {**self.exact, **{key: str(value) for key, value in self.least.items()}}


@dataclass(frozen=True, slots=True)
class ReplicaFaults:
    """Numbers of faulty partitions. under_min_isr: the partition takes no writes with `acks=all`. All are 0 in a log
    without replication."""

    leaderless: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """Actual state of a topic. replication: that of its least replicated partition; None for a log without
    replication."""

    topic_id: str
    partitions: int
    replication: int | None
    config: Mapping[str, str]
    faults: ReplicaFaults = ReplicaFaults()


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that differs from the required value."""

    topic: str
    setting: str
    got: str
    want: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.got}, must be {self.want}"


class TopicAdmin(Protocol):
    """Administers topics, named without the prefix. Raises Unavailable when no broker answers. A context manager."""

    def describe(self, topic: str) -> TopicState | None:
        """State of a topic, or None if it does not exist."""

    def create(self, spec: TopicSpec) -> bool:
        """Create a topic; returns once it can be written. False: it exists already and is left unchanged."""

    def delete(self, topic: str) -> None:
        """Delete a topic. A missing topic is not an error."""

    def trim(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Drop all records of each partition below an offset, which becomes the low watermark. Raises WrongTopic."""

    def close(self) -> None:
        """Release the connection. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def topic_specs(
    partitions: int,
    *,
    replication: int = REPLICATION,
    retention_ms: int = 5 * DAY_MS,
    timestamp_type: str = LOG_APPEND_TIME,
) -> tuple[TopicSpec, ...]:
    """Specs of all topics. retention_ms: retention of the log; it must exceed hold + outage of the chunk stage + the
    longest rebuild.

    timestamp_type: CREATE_TIME lets tests set broker times; `check_topics` refuses it.

    """
    common = {
        "message.timestamp.type": timestamp_type,
        "unclean.leader.election.enable": "false",
        "retention.bytes": "-1",
        "compression.type": "producer",
    }
    least = {"min.insync.replicas": 2 if replication >= 3 else 1, "max.message.bytes": RECORD_BYTES_MAX}
    compacted = {"min.compaction.lag.ms": CHUNKS_COMPACTION_LAG_MS}

    def spec(name: str, count: int, cleanup: str, retention: int | None, more: Mapping[str, int]) -> TopicSpec:
        kept = {} if retention is None else {"retention.ms": retention}
        return TopicSpec(name, count, replication, {**common, "cleanup.policy": cleanup}, {**least, **kept, **more})

    return (
        spec(METRICS, partitions, "delete", retention_ms, {}),
        spec(SERIES, partitions, "compact,delete", 90 * DAY_MS, {}),
        spec(CHUNKS, partitions, "compact,delete", 60 * DAY_MS, compacted),
        spec(CHUNKS_DLQ, partitions, "delete", 14 * DAY_MS, {}),
        spec(META, 1, "compact", None, {}),
        spec(METADATA, 1, "compact", None, {}),
    )


def retention_needed_ms(spec: TopicSpec, times: TimeSet) -> int | None:
    """Least retention of a topic in operation; None for a compacted topic. For the log it covers what a store replays
    and the chunk stage rereads, and OUTAGE_MS for an outage of the chunk stage or a rebuild."""
    if spec.name == METRICS:
        return times.least_hold_ms + times.window_ms + times.grace_ms + times.spread_ms + OUTAGE_MS
    return spec.least.get("retention.ms")


def create_topics(admin: TopicAdmin, specs: Sequence[TopicSpec]) -> list[str]:
    """Create the missing topics and return their names. Raises ConfigMismatch (topics) if an existing one differs."""
    made = [spec.name for spec in specs if admin.create(spec)]
    _refuse(_all_differences(admin, specs), specs)
    return made


def check_topics(admin: TopicAdmin, specs: Sequence[TopicSpec]) -> list[Difference]:
    """All settings that differ from the required ones. CREATE_TIME always differs."""
    strict = [
        TopicSpec(
            spec.name,
            spec.partitions,
            spec.replication,
            {**spec.exact, "message.timestamp.type": LOG_APPEND_TIME},
            spec.least,
        )
        for spec in specs
    ]
    return _all_differences(admin, strict)


def require_topics(admin: TopicAdmin, specs: Sequence[TopicSpec]) -> None:
    """Raises ConfigMismatch (topics) that names every difference. Each process calls it before it starts."""
    _refuse(check_topics(admin, specs), specs)


def differences(spec: TopicSpec, state: TopicState | None) -> list[Difference]:
    """Differences of one topic. More partitions than required are a difference too, because their number decides the
    partition of a series."""
    if state is None:
        return [Difference(spec.name, TOPIC, "missing", "there")]
    found: list[Difference] = []
    if state.partitions != spec.partitions:
        found.append(Difference(spec.name, "partitions", str(state.partitions), str(spec.partitions)))
    if state.replication is not None and state.replication < spec.replication:
        want = f"{spec.replication} or more"
        found.append(Difference(spec.name, "replication factor", str(state.replication), want))
    for key, value in spec.exact.items():
        got = state.config.get(key, "unset")
        if _words(got) != _words(value):
            found.append(Difference(spec.name, key, got, value))
    for key, least in spec.least.items():
        got = state.config.get(key, "unset")
        if not _at_least(got, least):
            found.append(Difference(spec.name, key, got, f"{least} or more"))
    return found


def _all_differences(admin: TopicAdmin, specs: Sequence[TopicSpec]) -> list[Difference]:
    return [difference for spec in specs for difference in differences(spec, admin.describe(spec.name))]


def how_to_create(found: Sequence[Difference], specs: Sequence[TopicSpec]) -> str:
    """The next step when a topic is missing, for example after an update that adds a topic; otherwise empty."""
    if not any(item.setting == TOPIC for item in found):
        return ""
    partitions = next(spec.partitions for spec in specs if spec.name == METRICS)
    return f"`tsdb topics create --partitions {partitions}` creates the missing topics and leaves the others unchanged"


def _refuse(found: Sequence[Difference], specs: Sequence[TopicSpec]) -> None:
    if found:
        steps = filter(None, (*map(str, found), how_to_create(found, specs)))
        raise ConfigMismatch("; ".join(steps), reason="topics")


def _words(value: str) -> set[str]:
    return {word.strip() for word in value.split(",")}  # Kafka gives back `compact,delete` in any order.


def _at_least(got: str, least: int) -> bool:
    try:
        number = int(got)
    except ValueError:
        return False
    return number == -1 or number >= least
