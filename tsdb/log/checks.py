"""Checks of both logs, so that Kafka and SQLite refuse with the same errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tsdb.log.interface import METADATA_UNITS_MAX, Position, TopicPartition
from tsdb.model.errors import InvalidRequest, Unavailable, WrongTopic


def check_commit(positions: Mapping[TopicPartition, Position], assigned: Collection[TopicPartition]) -> None:
    """Raises InvalidRequest (offset_negative, metadata_too_large) and Unavailable (stale_member)."""
    for (topic, partition), position in positions.items():
        place = f"topic {topic}, partition {partition}"
        if position.next_offset < 0:
            raise InvalidRequest(f"{place}: commit of offset {position.next_offset}", reason="offset_negative")
        units = len(position.metadata.encode("utf-16-le")) // 2
        if units > METADATA_UNITS_MAX:
            raise InvalidRequest(
                f"{place}: commit metadata of {units} UTF-16 units; the limit is {METADATA_UNITS_MAX}",
                reason="metadata_too_large",
            )
        if (topic, partition) not in assigned:
            raise Unavailable(f"{place}: not committed, it is not ours any more", reason="stale_member")


def check_followers(topics: Collection[str], followers: Mapping[str, str]) -> None:
    """Asserts that a follower is not joined itself, and that its leader is."""
    for follower, leader in followers.items():
        assert leader in topics, f"topic {follower} follows {leader}, which is not joined"
        assert follower not in topics, f"topic {follower} follows {leader} and is joined too"


def with_followers(partitions: Iterable[TopicPartition], followers: Mapping[str, str]) -> list[TopicPartition]:
    """The partitions and their followers, each once, the leaders first."""
    leaders = list(partitions)
    also = ((topic, number) for topic, leader in followers.items() for name, number in leaders if name == leader)
    return list(dict.fromkeys([*leaders, *also]))


def check_partition(topic: str, partition: int, count: int) -> None:
    """Raises InvalidRequest (unknown_partition). count: number of partitions of the topic."""
    if not 0 <= partition < count:
        raise InvalidRequest(
            f"topic {topic} has partitions 0 to {count - 1}; got {partition}",
            reason="unknown_partition",
            topic=topic,
            partition=partition,
        )


def wrong_topic(topic: str, want: str, got: str | None) -> WrongTopic:
    """The error for a topic whose id is now `got`; None: the topic was deleted."""
    if got is None:
        text = f"topic {topic} with id {want} was deleted"
        return WrongTopic(text, reason="topic_deleted", topic=topic, want=want)
    return WrongTopic(
        f"topic {topic} was made anew: its id is {got}, the one in use here was {want}",
        reason="topic_recreated",
        topic=topic,
        want=want,
        got=got,
    )
