"""Core: the parallel consumer without threads; the caller's thread runs one step at a time.

Guarantees: no commit passes an unfinished record; a lane runs one record at a time, in offset order; a record that a
commit marks as finished is not handled again. Clock, randomness, source and executor are arguments, so a test decides
every interleaving.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tsdb.parallel_consumer.admission import Admission
from tsdb.parallel_consumer.beginning import begun
from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.commits import Commits, OnCommitted
from tsdb.parallel_consumer.control import Control
from tsdb.parallel_consumer.control_file import ControlFile
from tsdb.parallel_consumer.dead_letter_topic import DeadLetterTopic
from tsdb.parallel_consumer.deferrals import Deferrals
from tsdb.parallel_consumer.errors import MetadataRefused, Misused
from tsdb.parallel_consumer.executors import Executor
from tsdb.parallel_consumer.intake import Intake
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Order, Place, by_key
from tsdb.parallel_consumer.outlet import Outlet
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.policy import ErrorPolicy
from tsdb.parallel_consumer.record import Partition, Position, Record, place_text
from tsdb.parallel_consumer.runner import Runner
from tsdb.parallel_consumer.showing import set_gauges, status_of
from tsdb.parallel_consumer.source import Source
from tsdb.parallel_consumer.status import EMPTY, Status
from tsdb.parallel_consumer.throttle import Throttle
from tsdb.parallel_consumer.work import Mailbox, Work

BUSY_WAIT_S = 0.005  # Between polls while records are ready: a poll costs as much as many records.
STATUS_EVERY_S = 0.25
LOOK_AGAIN_S = 0.05  # Between lookups of the dead letter topic while no broker answers.
LISTED_MAX = 20  # Partitions named in one log line.

log = logging.getLogger("tsdb.parallel_consumer")


def _ignore(positions: Mapping[Partition, Position]) -> None: ...


def _always(record: Record) -> bool:
    return True


class Core:
    """A SourceListener. `gate(record)`: whether a record in AFTER_ALL may run, called once all records before it are
    finished.

    on_committed(positions): called after each acknowledged commit. Both run on the owner's thread and must not block.
    `failure`: the error that ends the consumer; the caller of `step` checks it.
    """

    def __init__(
        self,
        source: Source,
        executor: Executor,
        mailbox: Mailbox,
        *,
        metrics: ConsumerMetrics,
        clock: Clock,
        order: Order = by_key,
        policy: ErrorPolicy | None = None,
        options: Options | None = None,
        outlet: Outlet | None = None,
        dead_letter_topic: str = "",
        gate: Callable[[Record], bool] = _always,
        on_committed: OnCommitted = _ignore,
        randomness: random.Random | None = None,
        control: Control | None = None,
        control_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._source = source
        self._mailbox = mailbox
        self._metrics = metrics
        self._log = LimitedLog(clock)
        self._clock = clock
        self._policy = policy or ErrorPolicy()
        self._options = options or Options()
        self._gate = gate
        if self._policy.sends and (outlet is None or not dead_letter_topic):
            raise Misused("the error policy may send dead letters: it needs an outlet and a dead letter topic")
        self._dead_letter_topic = DeadLetterTopic(dead_letter_topic, outlet)
        self._partitions: dict[Partition, PartitionWork] = {}
        self._epoch = 0
        self._throttle = Throttle(control or Control(), self._options.concurrency, metrics)
        self._control_file = ControlFile(control_file, self._throttle.change, metrics) if control_file else None
        self._runner = Runner(
            executor,
            mailbox,
            self._options,
            self._policy,
            outlet,
            self._dead_letter_topic,
            metrics,
            self._log,
            clock,
            randomness or random.Random(),
            self._throttle,
        )
        self._commits = Commits(source, self._options, metrics, self._log, clock, on_committed)
        self._admission = Admission(
            executor,
            self._runner,
            self._throttle,
            order,
            self._policy,
            self._options,
            metrics,
            clock,
            self._finish,
            self._passed,
        )
        self._intake = Intake(source, self._partitions, self._options, metrics, clock, self._admission)
        self._deferrals = Deferrals(self._options.deferral_alarm_s, metrics)
        self._failure: BaseException | None = None
        self._ended = False
        self._aborted = False
        self._status_at = clock.monotonic()
        self.status: Status = EMPTY

    @property
    def control(self) -> Control:
        """The Control in effect. A new value takes effect at the next step; from any thread."""
        return self._throttle.control

    @control.setter
    def control(self, control: Control) -> None:
        self._throttle.change(control)
        self._mailbox.wake()

    @property
    def failure(self) -> BaseException | None:
        return self._failure or self._runner.failure or self._commits.failure

    @property
    def running(self) -> int:
        """Records being handled or sent at this moment."""
        return self._runner.busy - self._runner.blocked

    def position(self, place: Partition) -> int | None:
        """All records of the partition below this offset are finished; None when it is not assigned. On the owner's
        thread.
        """
        part = self._partitions.get(place)
        return None if part is None else part.tracker.position

    def step(self, wait_s: float) -> None:
        """Do everything that can be done now; wait up to wait_s when there is nothing.

        Raises ConsumerError when the dead letter topic does not exist; no record has been read then.
        """
        if not self._dead_letter_topic.found():
            self._mailbox.wait(min(wait_s, LOOK_AGAIN_S))
            self._tell_status()
            return
        moved = self._advance()
        moved |= self._intake.admit_backlog()
        self._commits.if_due(self._partitions.values())
        wait_s = self._wait_s(wait_s)
        # While records run, wait for their completions, not for the source: a completion cannot wake the source.
        idle = not moved and not self.running
        if self._runner.unhurried:
            wait_s = min(wait_s, BUSY_WAIT_S)
        if self._intake.wants_poll(BUSY_WAIT_S if self._runner.ready else 0.0):
            moved |= self._intake.poll(wait_s if idle else 0.0)
            wait_s = 0.0 if idle else min(wait_s, BUSY_WAIT_S)
        if not moved and wait_s > 0:
            self._mailbox.wait(wait_s)
        self._tell_status()

    def drain(self) -> None:
        """End without further intake: wait up to drain_s for running records, then commit all finished ones."""
        self._drain(list(self._partitions.values()), self._options.drain_s)
        self._ended = True
        self._log.close()

    def abort(self) -> None:
        """End a drain at once; from any thread."""
        self._aborted = True
        self._mailbox.wake()

    # SourceListener.

    def on_assigned(self, starts: Mapping[Partition, Position]) -> None:
        log.info("assigned: %s", _listed(f"{place_text(place)} from {at.next_offset}" for place, at in starts.items()))
        for place, start in starts.items():
            try:
                self._partitions[place] = self._begin(place, start)
            except MetadataRefused as error:
                # Stored, not raised: this runs inside a callback of a client library.
                self._metrics.metadata_refused.inc()
                self._failure = error

    def on_revoked(self, partitions: Collection[Partition]) -> None:
        going = [self._partitions[place] for place in partitions if place in self._partitions]
        if not self._ended:
            self._drain(going, self._options.rebalance_drain_s)
        self._forget(going)
        log.info("given back: %s", _listed(map(place_text, partitions)))

    def on_lost(self, partitions: Collection[Partition]) -> None:
        log.warning("lost, what no commit covers is done again by others: %s", _listed(map(place_text, partitions)))
        self._forget([self._partitions[place] for place in partitions if place in self._partitions])

    def _begin(self, place: Partition, start: Position) -> PartitionWork:
        self._epoch += 1
        return begun(
            place,
            start,
            self._source.topic_id(place[0]),
            self._epoch,
            self._clock.monotonic(),
            self._metrics,
            accept_replay=self._options.accept_replay,
        )

    def _advance(self) -> bool:
        if self._control_file is not None:
            self._control_file.look(self._clock)
        ended = self._mailbox.take()
        if ended:
            self._finish(self._runner.settle(ended))
        moved = bool(ended) | self._runner.wake_due() | self._admission.advance()
        for part in self._partitions.values():
            if part.barriers:
                self._pass_barrier(part)
        return moved | self._runner.begin(self._write_ahead)

    def _finish(self, works: Sequence[Work]) -> None:
        intake, offer, count = self._intake, self._runner.offer, 0
        for work in works:
            part = work.owner
            if work.block is None:
                part.tracker.finish(work.slot)
                count += 1
            else:
                part.tracker.finish_block(work.slot, work.count)
                count += work.count
            if part.touched:
                part.touched.pop(work.slot, None)
            part.dirty = True
            intake.finished(work)
            if work.lane is not Place.FREE and work.streak is None:
                follower = part.lanes.leave(work)
                if follower is not None:
                    offer(follower)
        self._metrics.finished.inc(count)
        self._commits.count_finished(count)

    def _passed(self, part: PartitionWork, records: Sequence[Record]) -> None:
        self._intake.passed(part, records)
        self._commits.count_finished(len(records))

    def _pass_barrier(self, part: PartitionWork) -> None:
        first = part.barriers[0]
        if part.tracker.position == first.record.offset and self._gate(first.record):
            self._runner.offer(part.barriers.popleft())

    def _write_ahead(self, batch: list[Work]) -> bool:
        """Commit that these tasks run before they do, where they could crash the process before the next commit."""
        if self._policy.crashes_max is None:
            return True
        since = self._clock.monotonic() - self._options.write_ahead_s
        begun = [work for work in batch if work.letter is None]
        if any(work.crashes for work in begun):
            # Commit every partition before running a suspect record, so that records finished since the last commit are
            # not counted as crashed.
            return self._commits.soon(self._partitions.values())
        first = {work.owner for work in begun if work.owner.assigned_at > since}
        return not first or self._commits.soon(first)

    def _wait_s(self, wait_s: float) -> float:
        for due_s in (self._runner.next_due_in_s(), self._admission.due_in_s()):
            wait_s = wait_s if due_s is None else min(wait_s, due_s)
        if any(part.dirty for part in self._partitions.values()):
            wait_s = min(wait_s, self._commits.due_in_s())
        return wait_s

    def _drain(self, parts: list[PartitionWork], within_s: float) -> None:
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
            self._tell_status()
        self._note_undrained([part for part in parts if part.running], within_s)
        while not self._commits.now(parts) and self._commits.error_reason != "stale_member":
            left_s = give_up_at - self._clock.monotonic()
            if left_s <= 0 or self._aborted or self._commits.failure is not None:
                break
            self._mailbox.wait(min(left_s, self._options.commit_interval_s))

    def _note_undrained(self, parts: list[PartitionWork], within_s: float) -> None:
        for part in parts:
            self._metrics.undrained.inc(part.running)
            text = "%s: %d records did not end within %.1f s of draining, and are done again"
            self._log.say(
                logging.WARNING, "undrained", part.place, text, place_text(part.place), part.running, within_s
            )

    def _forget(self, parts: list[PartitionWork]) -> None:
        for part in parts:
            part.closed = True
            self._intake.forget(part)
            del self._partitions[part.place]
        self._runner.recall(parts)
        self._runner.drop_closed()
        self._admission.drop_closed()

    def _tell_status(self) -> None:
        now = self._clock.monotonic()
        if now < self._status_at:
            return
        self._status_at = now + STATUS_EVERY_S
        self.status = status_of(
            self._partitions,
            self._runner,
            self._intake,
            self._commits,
            now=now,
            stall_after_s=self._options.stall_after_s,
            deferred=self._deferrals.overdue(self._runner.unended(), now),
            control_error="" if self._control_file is None else self._control_file.error,
        )
        set_gauges(self._metrics, self.status)
        for stall in self.status.stalls:
            self._log.say(logging.WARNING, "stall", stall.place, "not ended for %.0f s: %s", stall.age_s, stall)
        self._log.flush()


def _listed(texts: Iterable[str]) -> str:
    """The first LISTED_MAX, and how many more there are."""
    found = list(texts)
    more = len(found) - LISTED_MAX
    return ", ".join(found[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
