"""Failures: handles a failed task: another attempt, a wait, a dead letter, or smaller blocks."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence

from tsdb.parallel_consumer.blocks import halves, parted
from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.dead_letter_topic import DeadLetterTopic
from tsdb.parallel_consumer.errors import GivenUp, HandlerStopped, Nack, SendFailed, SomeFailed
from tsdb.parallel_consumer.limited_log import LimitedLog, one_line
from tsdb.parallel_consumer.metrics import SEND_FAILURES, ConsumerMetrics
from tsdb.parallel_consumer.outlet import OutRecord, Story, dead_letter, requeued, rounds_left, without_value
from tsdb.parallel_consumer.pending import Pending
from tsdb.parallel_consumer.policy import Action, ErrorPolicy
from tsdb.parallel_consumer.record import Record, key_text
from tsdb.parallel_consumer.throttle import Throttle
from tsdb.parallel_consumer.work import Work

ERROR_CHARS_MAX = 300


class Failures:
    """next_first(work): called with a task that now has a record to send, to run before all others. offer(work): called
    with parts of a block. `fatal`: the error that ended the consumer; None before.
    """

    def __init__(
        self,
        policy: ErrorPolicy,
        dead_letter_topic: DeadLetterTopic,
        metrics: ConsumerMetrics,
        log: LimitedLog,
        clock: Clock,
        randomness: random.Random,
        throttle: Throttle,
        pending: Pending,
        next_first: Callable[[Work], None],
        offer: Callable[[Work], None],
    ) -> None:
        self._policy = policy
        self._dead_letter_topic = dead_letter_topic
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._random = randomness
        self._throttle = throttle
        self._pending = pending
        self._next_first = next_first
        self._offer = offer
        self._parted: list[Work] = []
        self.fatal: BaseException | None = None

    def failed(self, work: Work, error: BaseException) -> bool:
        """Handle a task that ended with an exception; whether that finishes it."""
        work.error = one_line(f"{type(error).__name__}: {error}", ERROR_CHARS_MAX)
        if work.letter is not None:
            self._not_sent(work, error)
            return False
        if isinstance(error, Nack):
            self._metrics.failures.labels("nack").inc()
            delay_s = max(0.0, error.delay_s)
            self._say(logging.INFO, "nack", work, "not now, the next try in %.1f s", delay_s)
            self._later(work, delay_s)
            return False
        if isinstance(error, SomeFailed) and work.block is not None:
            self._some_failed(work, error)
            return False
        return self._act(work, error)

    def take_parted(self) -> Sequence[Work]:
        """Finished parts of partly failed blocks since the last call."""
        taken, self._parted = self._parted, []
        return taken

    def give_up(self, work: Work, reason: str, error: BaseException | None) -> None:
        """Send a dead letter in its place."""
        story = Story(reason, error, work.failures, work.crashes, self._clock.now_ms())
        told = (reason, work.failures, work.crashes, self._dead_letter_topic.name, work.error or "it was running")
        text = "given up (%s; %d failures, %d crashes), to the dead letters in %s: %s"
        self._say(logging.WARNING, "dead_letter", work, text, *told)
        work.letter, work.letter_kind = self._letter(work.record, story), "dead_letter"
        self._next_first(work)

    def _letter(self, record: Record, story: Story) -> OutRecord:
        topic = self._dead_letter_topic
        return dead_letter(topic.name, record, story, topic.partition_of(record.partition))

    def _some_failed(self, work: Work, error: SomeFailed) -> None:
        """Try the failed rows again, each alone: then each row's exception counts."""
        fatal = [one for one in error.errors.values() if self._policy.action(one) is Action.FATAL]
        if fatal:
            self._end_all(work, fatal[0])
            return
        done, failed = parted(work, error.errors)
        self._parted.extend(done)
        self._instead(work, failed)

    def _instead(self, work: Work, parts: list[Work]) -> None:
        """Replace a block by these tasks, in its lane too."""
        work.owner.touched.pop(work.slot, None)
        for first in work.owner.lanes.instead(work, parts):
            self._offer(first)

    def _act(self, work: Work, error: BaseException) -> bool:
        action, reason = self._policy.action(error), error.reason if isinstance(error, GivenUp) else "exception"
        if action in (Action.RETRY, Action.BLOCK):
            opened_for_s = self._throttle.failed(self._clock.monotonic())
            if opened_for_s:
                text = "breaker opened, nothing begins for %.1f s: %s"
                self._log.say(logging.WARNING, "breaker", None, text, opened_for_s, work.error)
        if action is Action.RETRY:
            work.failures += 1
            work.owner.touched[work.slot] = work
            work.owner.dirty = True
            if work.failures >= self._policy.attempts_max:
                action, reason = self._policy.exhausted, "attempts"
        if work.block is not None and action in (Action.DEAD_LETTER, Action.SKIP, Action.REQUEUE):
            # Which record failed shows only in smaller blocks; each of them is tried once.
            self._instead(work, halves(work, self._policy.attempts_max - 1))
            return False
        self._metrics.failures.labels(action.value).inc()
        if action is Action.RETRY:
            delay_s = self._policy.retry_backoff.delay_s(work.failures, self._random)
            tries = (work.failures, self._policy.attempts_max)
            self._say(
                logging.WARNING,
                "retry",
                work,
                "attempt %d of %d failed, the next in %.1f s: %s",
                *tries,
                delay_s,
                work.error,
            )
            self._later(work, delay_s)
        elif action is Action.BLOCK:
            delay_s = self._block(work)
            self._say(logging.WARNING, "block", work, "blocked, the next try in %.1f s: %s", delay_s, work.error)
        elif action is Action.DEAD_LETTER:
            self.give_up(work, reason, error)
        elif action is Action.REQUEUE:
            self._requeue(work, error)
        elif action is Action.FATAL:
            self._end_all(work, error)
        elif action is Action.SKIP:
            self._say(logging.WARNING, "skip", work, "skipped: %s", work.error)
        return action is Action.SKIP

    def _end_all(self, work: Work, error: BaseException) -> None:
        record = work.record
        place = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
        self.fatal = HandlerStopped(f"{place}: {work.error}")
        self.fatal.__cause__ = error

    def _requeue(self, work: Work, error: BaseException) -> None:
        left = rounds_left(work.record, self._policy.requeues_max)
        if left <= 0:
            self.give_up(work, "requeues", error)
            return
        work.letter, work.letter_kind = requeued(work.record, left - 1), "requeue"
        self._say(logging.WARNING, "requeue", work, "requeued, %d rounds left: %s", left - 1, work.error)
        self._next_first(work)

    def _not_sent(self, work: Work, error: BaseException) -> None:
        assert work.letter is not None, "only letters are sent"
        reason = error.reason if isinstance(error, SendFailed) and error.reason in SEND_FAILURES else "unavailable"
        self._metrics.send_failures.labels(reason).inc()
        text = "its %s was not taken by topic %s (%s): %s"
        kind, topic = work.letter_kind.replace("_", " "), work.letter.topic
        self._say(logging.ERROR, f"send_{reason}", work, text, kind, topic, reason, work.error)
        if reason == "record_too_large" and work.letter.value is not None:
            work.letter = without_value(work.letter)
            self._next_first(work)
        else:
            self._block(work)

    def _block(self, work: Work) -> float:
        work.blocked += 1
        delay_s = self._policy.block_backoff.delay_s(work.blocked, self._random)
        self._pending.block(work, self._clock.monotonic() + delay_s)
        return delay_s

    def _later(self, work: Work, delay_s: float) -> None:
        self._pending.later(work, self._clock.monotonic() + delay_s)

    def _say(self, level: int, cause: str, work: Work, text: str, *arguments: object) -> None:
        record = work.record
        place = "topic %s, partition %d, offset %d, %s: "
        at = (record.topic, record.partition, record.offset, key_text(record.key))
        self._log.say(level, cause, record.place, place + text, *at, *arguments)
