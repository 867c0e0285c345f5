"""Group member over Kafka's consumer groups: incremental rebalance, commits that are confirmed and have a bound.

A stuck member is replaced by a new one. It is stuck when it receives no records of its partitions, or when it has no
partitions although the group assigned some. Its listener then loses the partitions, as after a session timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.log.checks import check_commit, check_followers, with_followers
from tsdb.log.interface import (
    POLL_BYTES_MAX,
    POLL_RECORDS_MAX,
    Event,
    GroupListener,
    Position,
    TopicPartition,
)
from tsdb.log.kafka.clients import GRACE_S, MEMBER, STUCK, bounded, count_renewal, end_client
from tsdb.log.kafka.config import Config
from tsdb.log.kafka.errors import to_error, translate_kafka_errors
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.log.kafka.watch import (
    BEYOND_REPAIR_S,
    IDLE_S,
    REBALANCED_WITHIN_S,
    SETTLED_WITHIN_S,
    GroupState,
    IdleMemberState,
    standing_of,
)
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.metrics import gauge

# A member learns of a rebalance from the answer to its next heartbeat, and other members wait for it.
HEARTBEAT_MS = 500

joining_seconds = gauge(
    "tsdb_log_member_joining_seconds",
    "Seconds for which the group's member of this process has had no partition, although the log answers and the group"
    " has one for it; 0 else.",
)

_Result = TypeVar("_Result")


def group_config(session_s: float) -> Config:
    """Settings of a member, added to the consumer's."""
    return {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": int(session_s * 1000),
        "heartbeat.interval.ms": HEARTBEAT_MS,
        # The library waits half of this time before it connects to the coordinator. One second would add 0.5 s to each
        # start.
        "reconnect.backoff.ms": 100,
    }


class KafkaGroup:
    """Implements Group. If the commits of new partitions cannot be read, it gives the partitions back and joins again.

    make_consumer: makes another member, in place of one that is stuck. group_state: reads the group from its
    coordinator.

    """

    def __init__(
        self,
        fetch: Fetch,
        guard: TopicGuard,
        prefix: str,
        timeout_s: float,
        clock: Clock,
        make_consumer: Callable[[], Consumer],
        group_state: Callable[[], GroupState],
        on_leave: Callable[[], None] = lambda: None,
        grace_s: float = GRACE_S,
    ) -> None:
        self._fetch = fetch
        self._guard = guard
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._clock = clock
        self._make_consumer = make_consumer
        self._group_state = group_state
        self._on_leave = on_leave
        self._grace_s = grace_s
        self._partitions: dict[str, int] = {}  # Partitions of the topics that were joined.
        self._topics: list[str] = []
        self._followers: Mapping[str, str] = {}
        self._listener: GroupListener | None = None
        self._failed: TsdbError | None = None  # Error of an assignment that could not be taken.
        self._left = False
        self._in_callback = False  # Calls of the consumer on other threads wait until the callback has returned.
        # The thread of the watch writes these; others read them.
        self._standing = IdleMemberState.JOINING
        self._joining_since: float | None = None
        self._without_since: float | None = None  # Time since which it has no partitions.
        self._renewed_at = 0.0
        # The reason for a new consumer. The watch sets it, and the next poll reads and clears it.
        self._must_renew = ""

    def join(
        self, topics: Sequence[str], listener: GroupListener, *, followers: Mapping[str, str] | None = None
    ) -> None:
        self._followers = followers or {}
        check_followers(topics, self._followers)
        for topic in self._followers:
            self._guard.partitions(topic)  # Raises for a missing topic.
        self._partitions = {topic: self._guard.partitions(topic) for topic in topics}
        self._topics = [self._prefix + topic for topic in topics]
        self._listener = listener
        self._subscribe()

    def poll(
        self, timeout_s: float, *, max_records: int = POLL_RECORDS_MAX, max_bytes: int = POLL_BYTES_MAX
    ) -> list[Event]:
        if self._fetch.take_stuck():
            self._renew(STUCK)
        elif self._must_renew:
            self._renew(self._must_renew)
        events = self._fetch.poll(timeout_s, max_records, max_bytes)
        if self._failed is not None:
            error, self._failed = self._failed, None
            with translate_kafka_errors("leaving the group"):
                self._fetch.consumer.unsubscribe()
            self._subscribe()
            raise error
        return events

    def wake(self) -> None:
        self._fetch.wake()

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        self._fetch.assign((topic, partition), next_offset)

    def pause(self, topic: str, partition: int) -> None:
        self._fetch.pause((topic, partition))

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._fetch.owned)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        # Kafka checks only that the member is current, not that it owns the partition.
        check_commit(positions, self._fetch.owned)
        offsets = [
            KafkaPartition(self._prefix + topic, partition, at.next_offset, at.metadata)
            for (topic, partition), at in positions.items()
        ]
        if not offsets:
            return
        consumer = self._fetch.consumer
        if self._left:  # A consumer that closes reads no commits back.
            self._commit_now(consumer, offsets)
            return
        # The library's synchronous commit waits without a bound for a coordinator, and no other call of the consumer
        # returns meanwhile. So the commit is sent, then read back; the coordinator answers both in order.
        self._call(lambda: consumer.commit(offsets=offsets, asynchronous=True), "commit")
        if self.committed(list(positions)) != dict(positions):
            # The coordinator has answered with a refusal; this call returns its reason.
            self._commit_now(consumer, offsets)

    def _commit_now(self, consumer: Consumer, offsets: list[KafkaPartition]) -> None:
        done = self._call(lambda: consumer.commit(offsets=offsets, asynchronous=False), "commit")
        for answer in done or []:
            if answer.error is not None:
                raise to_error(answer.error, f"commit of {answer.topic}, partition {answer.partition}")

    def is_spare(self) -> bool:
        return self._standing is IdleMemberState.SPARE and not self._fetch.owned

    def joining_s(self) -> float:
        since = self._joining_since
        return 0.0 if since is None else self._clock.monotonic() - since

    # Methods of Watched, on the thread of the watch.

    def look(self) -> None:
        """Find out why this member has no partition, and have it replaced when it should have one."""
        try:
            self._look()
        finally:
            joining_seconds.set(self.joining_s())

    def _look(self) -> None:
        if not self._partitions or self._fetch.owned or self._left:
            self._standing, self._joining_since, self._without_since = IdleMemberState.JOINING, None, None
            return
        now = self._clock.monotonic()
        if self._without_since is None:
            self._without_since = now
        if now - self._without_since < IDLE_S:
            return  # Most members have their partitions within a second.
        try:
            self._standing = standing_of(self._group_state(), self._partitions)
        except TsdbError:
            self._joining_since = None  # Without a coordinator no member gets partitions.
            raise
        if self._standing is IdleMemberState.SPARE:
            self._joining_since = None
            return
        if self._joining_since is None:
            self._joining_since = now
        within_s = SETTLED_WITHIN_S if self._standing is IdleMemberState.JOINING else REBALANCED_WITHIN_S
        if now - max(self._joining_since, self._renewed_at) >= within_s:
            self._must_renew = f"no partition for {now - self._joining_since:.0f} s, although {self._standing.value}"

    def stalled(self) -> str:
        joining_s = self.joining_s()
        if joining_s < BEYOND_REPAIR_S:
            return ""
        return f"no partition for {joining_s:.0f} s, although {self._standing.value}"

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        if not partitions:
            return {}
        requested = [self._fetch.kafka_partition(partition) for partition in partitions]
        consumer = self._fetch.consumer
        answers = self._call(lambda: consumer.committed(requested, timeout=self._timeout_s), "commits of the group")
        found: dict[TopicPartition, Position | None] = {}
        for partition, answer in zip(self._fetch.ours(answers), answers, strict=True):
            if answer.error is not None:
                raise to_error(answer.error, f"commits of {answer.topic}, partition {answer.partition}")
            found[partition] = Position(answer.offset, answer.metadata or "") if answer.offset >= 0 else None
        return found

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._on_leave()
            with translate_kafka_errors("leaving the group"):
                self._fetch.consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _subscribe(self) -> None:
        with translate_kafka_errors("joining the group"):
            self._fetch.consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def _renew(self, why: str) -> None:
        """Join with another consumer. The old one leaves the group on a separate thread."""
        self._failed, self._must_renew, self._renewed_at = None, "", self._clock.monotonic()
        count_renewal(MEMBER, why)
        old, lost = self._fetch.consumer, sorted(self._fetch.owned)
        self._fetch.disown(lost)
        self._fetch.replace(self._make_consumer())
        end_client(old.close)
        if lost:
            assert self._listener is not None, "no partitions before join"
            self._listener.on_lost(lost)
        self._subscribe()

    def _call(self, call: Callable[[], _Result], place: str) -> _Result:
        """Call the consumer with a bound. After a call that did not return, the consumer is replaced."""
        if self._in_callback:
            with translate_kafka_errors(place):
                return call()
        try:
            return bounded(call, self._timeout_s + self._grace_s, place)
        except Unavailable as error:
            if error.reason == "timeout":
                self._must_renew = f"a call did not return: {place}"
            raise

    @contextmanager
    def _callback(self) -> Iterator[None]:
        self._in_callback = True
        try:
            yield
        finally:
            self._in_callback = False

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        assert self._listener is not None, "no assignment before join"
        if not partitions or consumer is not self._fetch.consumer:
            return
        with self._callback():
            self._take(consumer, partitions, self._listener)

    def _take(self, consumer: Consumer, partitions: list[KafkaPartition], listener: GroupListener) -> None:
        ours = with_followers(self._fetch.ours(partitions), self._followers)
        try:
            self._find_followers()
            starts = listener.on_assigned(self.committed(ours))
        except TsdbError as error:
            # Without its commits a partition has no start. The library takes the partition anyway when this returns;
            # its records are dropped, and `poll` joins the group again.
            self._failed = error
            self._fetch.wake()
            return
        assert set(starts) == set(ours), f"a start for each of {ours}; got {dict(starts)}"
        consumer.incremental_assign([self._fetch.kafka_partition(tp, offset) for tp, offset in starts.items()])
        self._fetch.own(starts)

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        assert self._listener is not None, "no revocation before join"
        if consumer is not self._fetch.consumer:
            return  # The consumer was replaced, and its partitions are given up; the library unassigns them.
        going = self._held(partitions)
        try:
            if going:
                # Commit these partitions before this returns, because afterwards the member id is not valid for them.
                with self._callback():
                    self._listener.on_revoked(going)
        finally:
            self._give_up(consumer, partitions, going)

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        assert self._listener is not None, "no loss before join"
        if consumer is not self._fetch.consumer:
            return
        gone = self._held(partitions)
        self._give_up(consumer, partitions, gone)
        if gone:
            self._listener.on_lost(gone)

    def _find_followers(self) -> None:
        """Load the leaders of the followers. The library knows the leaders of subscribed topics; others would come 1 s
        later."""
        for topic in self._followers:
            with translate_kafka_errors(f"topic {topic}"):
                self._fetch.consumer.list_topics(self._prefix + topic, timeout=self._timeout_s)

    def _held(self, partitions: list[KafkaPartition]) -> list[TopicPartition]:
        ours = with_followers(self._fetch.ours(partitions), self._followers)
        return [partition for partition in ours if partition in self._fetch.owned]

    def _give_up(self, consumer: Consumer, named: list[KafkaPartition], going: Sequence[TopicPartition]) -> None:
        self._fetch.disown(going)
        if self._followers:
            # The library unassigns only the partitions it named; it does not know their followers.
            known = set(self._fetch.ours(named))
            also = [self._fetch.kafka_partition(partition) for partition in going if partition not in known]
            consumer.incremental_unassign([*named, *also])
