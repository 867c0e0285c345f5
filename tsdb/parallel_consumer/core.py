"""Core: the parallel consumer without threads; the caller's thread runs one step at a time.

Guarantees: no commit passes an unfinished record; a lane runs one record at a time, in offset order; a record that a
commit marks as finished is not handled again. Clock, randomness, source and executor are arguments, so a test decides
every interleaving.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from tsdb.parallel_consumer.control import Control
from tsdb.parallel_consumer.errors import MetadataRefused
from tsdb.parallel_consumer.flow.admission import Admission, Callbacks
from tsdb.parallel_consumer.flow.control_file import ControlFile
from tsdb.parallel_consumer.flow.intake import Intake
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.offsets.assignment import assigned_partition
from tsdb.parallel_consumer.offsets.commits import Commits
from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.record import Position, Record, TopicPartition, topic_partition_text
from tsdb.parallel_consumer.scheduling.completion import Mailbox
from tsdb.parallel_consumer.scheduling.dead_letter_topic import DeadLetterTopic
from tsdb.parallel_consumer.scheduling.deferrals import Deferrals
from tsdb.parallel_consumer.scheduling.environment import Environment
from tsdb.parallel_consumer.scheduling.executor import Executor
from tsdb.parallel_consumer.scheduling.runner import Runner
from tsdb.parallel_consumer.scheduling.task import Task
from tsdb.parallel_consumer.scheduling.throttle import Throttle
from tsdb.parallel_consumer.setup import Setup
from tsdb.parallel_consumer.source import Source
from tsdb.parallel_consumer.status import EMPTY, Status, set_gauges, status_of

BUSY_WAIT_S = 0.005  # Time between polls while records are ready, because a poll costs as much as many records.
STATUS_EVERY_S = 0.25
LOOKUP_RETRY_S = 0.05  # Time between lookups of the dead letter topic while no broker answers.
LISTED_MAX = 20  # Partitions named in one log line.

log = logging.getLogger("tsdb.parallel_consumer")


class Core:
    """Implements SourceListener. `failure`: the error that ends the consumer; the caller of `step` checks it."""

    def __init__(self, source: Source, executor: Executor, mailbox: Mailbox, setup: Setup) -> None:
        env = Environment(
            setup.options,
            setup.policy,
            setup.metrics.of_consumer(),
            LimitedLog(setup.clock),
            setup.clock,
            setup.randomness,
        )
        self._source = source
        self._mailbox = mailbox
        self._metrics = env.metrics
        self._log = env.log
        self._clock = env.clock
        self._policy = env.policy
        self._options = env.options
        self._gate = setup.gate
        self._dead_letter_topic = DeadLetterTopic(setup.dead_letter_topic, setup.producer)
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._generation = 0
        self._throttle = Throttle(setup.control, env.options.concurrency, env.metrics)
        self._control_file: ControlFile | None = None
        if setup.control_file:
            self._control_file = ControlFile(setup.control_file, self._throttle.change, env.metrics)
        self._runner = Runner(env, executor, mailbox, setup.producer, self._dead_letter_topic, self._throttle)
        self._commits = Commits(env, source, setup.on_committed)
        callbacks = Callbacks(self._finish, self._passed)
        self._admission = Admission(env, executor, self._runner, self._throttle, setup.order, callbacks)
        self._intake = Intake(env, source, self._partitions, self._admission)
        self._deferrals = Deferrals(env.options.deferral_alarm_s, env.metrics)
        self._failure: BaseException | None = None
        self._ended = False
        self._aborted = False
        self._status_at = env.clock.monotonic()
        self._changed = True  # Whether anything changed since the last status.
        self.status: Status = EMPTY

    @property
    def control(self) -> Control:
        """The Control in effect. A new value takes effect at the next step. Any thread may call it."""
        return self._throttle.control

    @control.setter
    def control(self, control: Control) -> None:
        self._throttle.change(control)
        self._mailbox.wake()

    @property
    def failure(self) -> BaseException | None:
        return self._failure or self._runner.failure or self._commits.failure

    @property
    def is_idle(self) -> bool:
        """Whether only the source, or a change from another thread, can bring something to do."""
        return not self._intake.records and not self._changed

    @property
    def running(self) -> int:
        """Records being handled or sent at this moment."""
        return self._runner.busy - self._runner.blocked

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset below which all records of the partition are finished; None when it is not assigned. On the
        owner's thread."""
        part = self._partitions.get(topic_partition)
        return None if part is None else part.tracker.position

    def step(self, wait_s: float) -> None:
        """Do everything that can be done now; wait up to wait_s when there is nothing.

        Raises ConsumerError when the dead letter topic does not exist; no record has been read then.
        """
        if not self._dead_letter_topic.found():
            self._mailbox.wait(min(wait_s, LOOKUP_RETRY_S))
            self._publish_status()
            return
        moved = self._advance()
        moved |= self._intake.admit_backlog()
        self._commits.if_due(self._partitions.values())
        wait_s = self._wait_s(wait_s)
        # While records run, wait for their completions, not for the source: a completion cannot wake the source.
        idle = not moved and not self.running
        if self._runner.may_skip_wakeup:
            wait_s = min(wait_s, BUSY_WAIT_S)
        if self._intake.wants_poll(BUSY_WAIT_S if self._runner.ready else 0.0):
            moved |= self._intake.poll(wait_s if idle else 0.0)
            wait_s = 0.0 if idle else min(wait_s, BUSY_WAIT_S)
        if not moved and wait_s > 0:
            self._mailbox.wait(wait_s)
        self._changed |= moved
        self._publish_status()

    def drain(self) -> None:
        """End without further intake: wait up to drain_s for running records, then commit all finished ones."""
        self._drain(list(self._partitions.values()), self._options.drain_s)
        self._ended = True
        self._log.close()

    def clear_gauges(self) -> None:
        """Remove this consumer's part of the gauges that others share, once it has ended."""
        self._metrics.clear()

    def abort(self) -> None:
        """End a drain at once. Any thread may call it."""
        self._aborted = True
        self._mailbox.wake()

    # SourceListener.

    def on_assigned(self, starts: Mapping[TopicPartition, Position]) -> None:
        self._changed = True
        log.info(
            "assigned: %s",
            _listed(
                f"{topic_partition_text(topic_partition)} from {at.next_offset}"
                for topic_partition, at in starts.items()
            ),
        )
        for topic_partition, start in starts.items():
            try:
                self._partitions[topic_partition] = self._assign(topic_partition, start)
            except MetadataRefused as error:
                # Stored and not raised, because this runs inside a callback of a client library.
                self._metrics.metadata_refused.inc()
                self._failure = error

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        going = [
            self._partitions[topic_partition] for topic_partition in partitions if topic_partition in self._partitions
        ]
        if not self._ended:
            self._drain(going, self._options.rebalance_drain_s)
        self._forget(going)
        log.info("given back: %s", _listed(map(topic_partition_text, partitions)))

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        log.warning(
            "lost, others repeat the records above the commits: %s",
            _listed(map(topic_partition_text, partitions)),
        )
        self._forget(
            [self._partitions[topic_partition] for topic_partition in partitions if topic_partition in self._partitions]
        )

    def _assign(self, topic_partition: TopicPartition, start: Position) -> PartitionState:
        self._generation += 1
        return assigned_partition(
            topic_partition,
            start,
            self._source.topic_id(topic_partition[0]),
            self._generation,
            self._clock.monotonic(),
            self._metrics,
            accept_replay=self._options.accept_replay,
        )

    def _advance(self) -> bool:
        if self._control_file is not None:
            self._control_file.check(self._clock)
        ended = self._mailbox.take()
        if ended:
            self._finish(self._runner.settle(ended))
        moved = bool(ended) | self._runner.wake_due() | self._admission.advance()
        for part in self._partitions.values():
            if part.barriers:
                self._pass_barrier(part)
        return moved | self._runner.begin(self._write_ahead)

    def _finish(self, tasks: Sequence[Task]) -> None:
        intake, offer, count = self._intake, self._runner.offer, 0
        for task in tasks:
            count += task.count
            intake.finished(task)
            follower = task.owner.finish(task)
            if follower is not None:
                offer(follower)
        self._metrics.finished.inc(count)
        self._commits.count_finished(count)

    def _passed(self, part: PartitionState, records: Sequence[Record]) -> None:
        self._intake.passed(part, records)
        self._commits.count_finished(len(records))

    def _pass_barrier(self, part: PartitionState) -> None:
        first = part.barriers[0]
        if part.tracker.position == first.record.offset and self._gate(first.record):
            self._runner.offer(part.barriers.popleft())

    def _write_ahead(self, batch: list[Task]) -> bool:
        """Commit that these tasks run before they do, where they could crash the process before the next commit."""
        if self._policy.crashes_max is None:
            return True
        since = self._clock.monotonic() - self._options.write_ahead_s
        starting = [task for task in batch if task.outgoing is None]
        if any(task.crashes for task in starting):
            # Commit every partition before running a suspect record, so that records finished since the last commit are
            # not counted as crashed.
            return self._commits.soon(self._partitions.values())
        fresh = {task.owner.topic_partition for task in starting if task.owner.assigned_at > since}
        return not fresh or self._commits.soon(
            part for part in self._partitions.values() if part.topic_partition in fresh
        )

    def _wait_s(self, wait_s: float) -> float:
        for due_s in (self._runner.next_due_in_s(), self._admission.due_in_s()):
            wait_s = wait_s if due_s is None else min(wait_s, due_s)
        if any(part.dirty for part in self._partitions.values()):
            self._changed = True
            wait_s = min(wait_s, self._commits.due_in_s())
        if self._changed:
            wait_s = min(wait_s, max(0.0, self._status_at - self._clock.monotonic()))
        return wait_s

    def _drain(self, parts: list[PartitionState], within_s: float) -> None:
        give_up_at = self._clock.monotonic() + within_s
        for part in parts:
            part.draining = True
        self._runner.recall(parts)
        self._advance()
        # Do not wait for records that can never be committed.
        while any(part.running for part in parts) and not self._aborted and self._commits.failure is None:
            left_s = give_up_at - self._clock.monotonic()
            if left_s <= 0:
                break
            self._mailbox.wait(min(left_s, self._wait_s(STATUS_EVERY_S)))
            self._advance()
            self._publish_status()
        self._note_undrained([part for part in parts if part.running], within_s)
        while not self._commits.now(parts) and self._commits.error_reason != "stale_member":
            left_s = give_up_at - self._clock.monotonic()
            if left_s <= 0 or self._aborted or self._commits.failure is not None:
                break
            self._mailbox.wait(min(left_s, self._options.commit_interval_s))

    def _note_undrained(self, parts: list[PartitionState], within_s: float) -> None:
        for part in parts:
            self._metrics.undrained.inc(part.running)
            text = "%s: %d records did not end within %.1f s of draining, and are repeated"
            self._log.log(
                logging.WARNING,
                "undrained",
                part.topic_partition,
                text,
                topic_partition_text(part.topic_partition),
                part.running,
                within_s,
            )

    def _forget(self, parts: list[PartitionState]) -> None:
        self._changed = True
        for part in parts:
            part.closed = True
            self._intake.forget(part)
            del self._partitions[part.topic_partition]
        self._runner.recall(parts)
        self._runner.drop_closed()
        self._admission.drop_closed()

    def _publish_status(self) -> None:
        now = self._clock.monotonic()
        if now < self._status_at:
            return
        self._status_at, self._changed = now + STATUS_EVERY_S, False
        self.status = status_of(
            self._partitions,
            self._runner,
            self._intake,
            self._commits,
            now=now,
            stall_after_s=self._options.stall_after_s,
            deferred=self._deferrals.overdue(self._runner.unfinished(), now),
            control_error="" if self._control_file is None else self._control_file.error,
        )
        set_gauges(self._metrics, self.status)
        for stall in self.status.stalls:
            self._log.log(
                logging.WARNING, "stall", stall.topic_partition, "not ended for %.0f s: %s", stall.age_s, stall
            )
        self._log.flush()


def _listed(texts: Iterable[str]) -> str:
    """The first LISTED_MAX, and how many more there are."""
    found = list(texts)
    more = len(found) - LISTED_MAX
    return ", ".join(found[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
