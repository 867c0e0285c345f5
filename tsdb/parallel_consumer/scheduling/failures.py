"""Failures: handles a failed task: another attempt, a wait, a dead letter, or smaller blocks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tsdb.parallel_consumer.errors import DeadLettered, HandlerStopped, Nack, SendFailed, SomeFailed
from tsdb.parallel_consumer.limited_log import one_line
from tsdb.parallel_consumer.metrics import SEND_FAILURES
from tsdb.parallel_consumer.policy import Action
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Record, key_text
from tsdb.parallel_consumer.scheduling.blocks import halves, split_failed
from tsdb.parallel_consumer.scheduling.dead_letter_topic import DeadLetterTopic
from tsdb.parallel_consumer.scheduling.dead_letters import (
    FailureDetails,
    dead_letter,
    requeued,
    rounds_left,
    without_value,
)
from tsdb.parallel_consumer.scheduling.environment import Environment
from tsdb.parallel_consumer.scheduling.pending import Pending
from tsdb.parallel_consumer.scheduling.task import Task
from tsdb.parallel_consumer.scheduling.throttle import Throttle

ERROR_CHARS_MAX = 300


class Failures:
    """run_first(task): called with a task that has a record to send, which must run before all others. offer(task):
    called with parts of a block. `fatal`: the error that ended the consumer; None before."""

    def __init__(
        self,
        env: Environment,
        dead_letter_topic: DeadLetterTopic,
        throttle: Throttle,
        pending: Pending,
        run_first: Callable[[Task], None],
        offer: Callable[[Task], None],
    ) -> None:
        self._policy = env.policy
        self._dead_letter_topic = dead_letter_topic
        self._metrics = env.metrics
        self._log = env.log
        self._clock = env.clock
        self._random = env.randomness
        self._throttle = throttle
        self._pending = pending
        self._run_first = run_first
        self._offer = offer
        self._finished_parts: list[Task] = []
        self.fatal: BaseException | None = None

    def failed(self, task: Task, error: BaseException) -> bool:
        """Handle a task that ended with an exception; whether that finishes it."""
        task.error = one_line(f"{type(error).__name__}: {error}", ERROR_CHARS_MAX)
        if task.outgoing is not None:
            self._not_sent(task, error)
            return False
        if isinstance(error, Nack):
            self._metrics.failures.labels("nack").inc()
            delay_s = max(0.0, error.delay_s)
            self._log_line(logging.INFO, "nack", task, "not now, the next try in %.1f s", delay_s)
            self._later(task, delay_s)
            return False
        if isinstance(error, SomeFailed) and task.block is not None:
            self._some_failed(task, error)
            return False
        return self._act(task, error)

    def take_finished_parts(self) -> Sequence[Task]:
        """Finished parts of partly failed blocks since the last call."""
        taken, self._finished_parts = self._finished_parts, []
        return taken

    def to_dead_letters(self, task: Task, reason: str, error: BaseException | None) -> None:
        """Send a dead letter in place of each record of the task."""
        failure_details = FailureDetails(reason, error, task.failures, task.crashes, self._clock.now_ms())
        details = (reason, task.failures, task.crashes, self._dead_letter_topic.name, task.error or "it was running")
        text = "given up (%s; %d failures, %d crashes), to the dead letters in %s: %s"
        self._log_line(logging.WARNING, "dead_letter", task, text, *details)
        task.outgoing, task.outgoing_kind = self._dead_letter(task.record, failure_details), "dead_letter"
        self._run_first(task)

    def _dead_letter(self, record: Record, failure_details: FailureDetails) -> OutRecord:
        topic = self._dead_letter_topic
        return dead_letter(topic.name, record, failure_details, topic.partition_of(record.partition))

    def _some_failed(self, task: Task, error: SomeFailed) -> None:
        """Try the failed rows again, each alone: then each row's exception counts."""
        fatal = [one for one in error.errors.values() if self._policy.action(one) is Action.FATAL]
        if fatal:
            self._end_all(task, fatal[0])
            return
        done, failed = split_failed(task, error.errors)
        self._finished_parts.extend(done)
        self._replace(task, failed)

    def _replace(self, task: Task, parts: list[Task]) -> None:
        """Replace a block by these tasks, in its lane too."""
        for first in task.owner.replace_running(task, parts):
            self._offer(first)

    def _act(self, task: Task, error: BaseException) -> bool:
        action, reason = self._policy.action(error), error.reason if isinstance(error, DeadLettered) else "exception"
        if action in (Action.RETRY, Action.BLOCK):
            opened_for_s = self._throttle.failed(self._clock.monotonic())
            if opened_for_s:
                text = "breaker opened, no record begins for %.1f s: %s"
                self._log.log(logging.WARNING, "breaker", None, text, opened_for_s, task.error)
        if action is Action.RETRY:
            task.failures += 1
            task.owner.touch(task)
            if task.failures >= self._policy.attempts_max:
                action, reason = self._policy.exhausted, "attempts"
        if task.block is not None and action in (Action.DEAD_LETTER, Action.SKIP, Action.REQUEUE):
            # Only smaller blocks show which record failed; each of them is tried once.
            self._replace(task, halves(task, self._policy.attempts_max - 1))
            return False
        self._metrics.failures.labels(action.value).inc()
        if action is Action.RETRY:
            delay_s = self._policy.retry_backoff.delay_s(task.failures, self._random)
            attempts = (task.failures, self._policy.attempts_max)
            self._log_line(
                logging.WARNING,
                "retry",
                task,
                "attempt %d of %d failed, the next in %.1f s: %s",
                *attempts,
                delay_s,
                task.error,
            )
            self._later(task, delay_s)
        elif action is Action.BLOCK:
            delay_s = self._block(task)
            self._log_line(logging.WARNING, "block", task, "blocked, the next try in %.1f s: %s", delay_s, task.error)
        elif action is Action.DEAD_LETTER:
            self.to_dead_letters(task, reason, error)
        elif action is Action.REQUEUE:
            self._requeue(task, error)
        elif action is Action.FATAL:
            self._end_all(task, error)
        elif action is Action.SKIP:
            self._log_line(logging.WARNING, "skip", task, "skipped: %s", task.error)
        return action is Action.SKIP

    def _end_all(self, task: Task, error: BaseException) -> None:
        record = task.record
        location = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
        self.fatal = HandlerStopped(f"{location}: {task.error}")
        self.fatal.__cause__ = error

    def _requeue(self, task: Task, error: BaseException) -> None:
        left = rounds_left(task.record, self._policy.requeues_max)
        if left <= 0:
            self.to_dead_letters(task, "requeues", error)
            return
        task.outgoing, task.outgoing_kind = requeued(task.record, left - 1), "requeue"
        self._log_line(logging.WARNING, "requeue", task, "requeued, %d rounds left: %s", left - 1, task.error)
        self._run_first(task)

    def _not_sent(self, task: Task, error: BaseException) -> None:
        assert task.outgoing is not None, "the task has no record to send"
        reason = error.reason if isinstance(error, SendFailed) and error.reason in SEND_FAILURES else "unavailable"
        self._metrics.send_failures.labels(reason).inc()
        text = "its %s was not taken by topic %s (%s): %s"
        kind, topic = task.outgoing_kind.replace("_", " "), task.outgoing.topic
        self._log_line(logging.ERROR, f"send_{reason}", task, text, kind, topic, reason, task.error)
        if reason == "record_too_large" and task.outgoing.value is not None:
            task.outgoing = without_value(task.outgoing)
            self._run_first(task)
        else:
            self._block(task)

    def _block(self, task: Task) -> float:
        task.blocked += 1
        delay_s = self._policy.block_backoff.delay_s(task.blocked, self._random)
        self._pending.block(task, self._clock.monotonic() + delay_s)
        return delay_s

    def _later(self, task: Task, delay_s: float) -> None:
        self._pending.later(task, self._clock.monotonic() + delay_s)

    def _log_line(self, level: int, cause: str, task: Task, text: str, *arguments: object) -> None:
        record = task.record
        location = "topic %s, partition %d, offset %d, %s: "
        at = (record.topic, record.partition, record.offset, key_text(record.key))
        self._log.log(level, cause, record.topic_partition, location + text, *at, *arguments)
