"""Runner: keeps the tasks that are ready, running, or waiting for their next attempt.

Records that wait behind one another in a lane are handed over together as a streak, if the executor supports streaks
and no decision is needed in between. A streak uses one slot, and gives it up soon when others want it.

A blocked record keeps its slot: once all slots are blocked no record begins, and the unavailable dependency is tried
ever less often. One thread; completions come through the mailbox.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable

from tsdb.parallel_consumer.producer import Producer
from tsdb.parallel_consumer.scheduling.completion import Completion, Mailbox, Outcome
from tsdb.parallel_consumer.scheduling.dead_letter_topic import DeadLetterTopic
from tsdb.parallel_consumer.scheduling.environment import Environment
from tsdb.parallel_consumer.scheduling.executor import (
    Executor,
    SupportsBatching,
    SupportsColumns,
    SupportsStreaks,
)
from tsdb.parallel_consumer.scheduling.failures import Failures
from tsdb.parallel_consumer.scheduling.pending import Pending
from tsdb.parallel_consumer.scheduling.running import Running
from tsdb.parallel_consumer.scheduling.task import Task, TaskOwner
from tsdb.parallel_consumer.scheduling.throttle import Throttle, ThrottleDecision

WriteAhead = Callable[[list[Task]], bool]


class Runner:
    """busy: running and blocked records; a streak counts as one."""

    def __init__(
        self,
        env: Environment,
        executor: Executor,
        mailbox: Mailbox,
        producer: Producer | None,
        dead_letter_topic: DeadLetterTopic,
        throttle: Throttle,
    ) -> None:
        self._executor = executor
        self._column_executor = executor if isinstance(executor, SupportsColumns) else None
        self._streak_executor = executor if isinstance(executor, SupportsStreaks) else None
        self._batching = executor if isinstance(executor, SupportsBatching) else None
        self._throttle = throttle
        self._mailbox = mailbox
        self._policy = env.policy
        self._producer = producer
        self._metrics = env.metrics
        self._clock = env.clock
        self._ready: deque[Task] = deque()
        self._running = Running(env, throttle, mailbox)
        self._pending = Pending()
        self._suspect: Task | None = None  # Of the records that were running at a crash, only one runs at a time.
        self._suspects: deque[Task] = deque()
        self._failures = Failures(env, dead_letter_topic, throttle, self._pending, self._ready_first, self.offer)

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the consumer; None while it works."""
        return self._failures.fatal

    @property
    def busy(self) -> int:
        return len(self._running) + self._pending.blocked

    @property
    def ready(self) -> int:
        """Number of tasks that could begin."""
        return len(self._ready)

    @property
    def blocked(self) -> int:
        """Number of tasks that wait for an unavailable dependency."""
        return self._pending.blocked

    def blocked_by(self) -> dict[str, int]:
        """Number of blocked tasks by cause. It includes tasks that wait and tasks that are being tried again."""
        blocked_tasks = [task for task in itertools.chain(self._running, self._pending.blocked_tasks()) if task.blocked]
        by_producer = sum(task.outgoing is not None for task in blocked_tasks)
        return {"handler": len(blocked_tasks) - by_producer, "outlet": by_producer}

    @property
    def may_skip_wakeup(self) -> bool:
        """Whether tasks may have completed without waking the consumer."""
        return bool(self._running)

    def unfinished(self) -> Iterable[Task]:
        """All tasks begun and not ended."""
        return itertools.chain(self._running, self._pending)

    def offer(self, task: Task) -> None:
        """The task may run now. One that was running at crashes_max crashes becomes a dead letter instead."""
        crashes_max = self._policy.crashes_max
        if crashes_max is not None and task.crashes >= crashes_max and task.outgoing is None:
            self._failures.to_dead_letters(task, "crashes", None)
        else:
            self._ready.append(task)

    def next_due_in_s(self) -> float | None:
        """Seconds until a wait, a limit or a batch is due, which wakes the consumer by time alone; None: none is."""
        now = self._clock.monotonic()
        sources = [self._pending.due_in_s, self._throttle.due_in_s]
        if self._batching is not None:
            sources.append(self._batching.due_in_s)
        return min((due_s for due_in in sources if (due_s := due_in(now)) is not None), default=None)

    def wake_due(self) -> bool:
        """Make ready all tasks whose waiting time is over; whether there were any."""
        now = self._clock.monotonic()
        changed = self._throttle.changed()
        if changed is not None or not self._throttle.unrestricted:
            self._ready.extend(self._running.recall())
        let_through = changed or self._throttle.release(now)
        passed = [task for task in let_through if self._pending.take(task)]
        self._ready.extend(passed)
        due = self._pending.take_due(now)
        self._again(due)
        return bool(passed or due)

    def begin(self, write_ahead: WriteAhead) -> bool:
        """Start ready tasks as far as there are slots; whether any started.

        `write_ahead` is called first, with the tasks marked as running; when it returns False, none begins.
        """
        batch = self._choose() if self._ready else []
        started = bool(batch) and self._begin(batch, write_ahead)
        if self._batching is not None:
            self._batching.flush(self._clock.monotonic())
        return started

    def settle(self, outcomes: Iterable[Outcome]) -> list[Task]:
        """Process completions; returns the finished tasks of partitions that are still assigned."""
        finished: list[Task] = []
        handled = False
        for completion, error in outcomes:
            task = completion.task
            if not task.running or completion.run != task.run:
                self._metrics.ignored.labels("late").inc()
                continue
            self._stop(task)
            if task.streak is not None:
                self._running.go_on(task, task.streak, error)
            if task.owner.closed:
                self._metrics.ignored.labels("late").inc()
            elif error is None:
                if task.outgoing is None:
                    handled = True
                else:
                    self._metrics.sent.labels(task.outgoing_kind).inc()
                    self._again(self._pending.take_blocked())
                finished.append(task)
            elif self._failures.failed(task, error):
                finished.append(task)
        finished.extend(self._failures.take_finished_parts())
        if handled:
            self.succeeded()
        return finished

    def succeeded(self) -> None:
        """A record succeeded: shared dependencies are available."""
        self._throttle.succeeded()
        self._again(self._pending.take_blocked())

    def failed_inline(self, task: Task, error: BaseException) -> None:
        """A record failed in the inline handler."""
        self._running.start(task)
        self._mailbox.put(Completion(task, self._mailbox), error)

    def recall(self, parts: Collection[TaskOwner]) -> None:
        """Take back handed-over tasks of these partitions that have not begun."""
        self._ready.extend(self._running.recall(parts))

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions; a running one keeps its slot until it ends."""
        self._pending.drop_closed()
        self._throttle.drop_closed()
        self._ready = deque(task for task in self._ready if not task.owner.closed)
        self._suspects = deque(task for task in self._suspects if not task.owner.closed)

    def _begin(self, batch: list[Task], write_ahead: WriteAhead) -> bool:
        if not write_ahead(batch):
            for task in reversed(batch):
                self._stop(task)
                self._ready.appendleft(task)
            return False
        now = self._clock.monotonic()
        self._throttle.began(now)
        mailbox, submit = self._mailbox, self._executor.submit
        streaks = self._streak_executor if self._running.may_streak else None
        for task in batch:
            if task.outgoing is not None:
                assert self._producer is not None, "a record to send without a producer"
                self._producer.send(task.outgoing, Completion(task, mailbox))
            elif task.block is not None:
                assert self._column_executor is not None, "a block for an executor without columns"
                self._column_executor.submit_columns(task.block, Completion(task, mailbox))
            elif streaks is not None and (streak := self._running.streak_from(task, now)) is not None:
                streaks.submit_streak(streak)
            else:
                submit(task.record, Completion(task, mailbox))
        return True

    def _choose(self) -> list[Task]:
        batch: list[Task] = []
        ready, throttle = self._ready, self._throttle
        now = self._clock.monotonic()
        if len(ready) > throttle.slots - self.busy:
            self._running.hurry(now)
        capacity = throttle.slots - self.busy
        allowed = throttle.allowed(now)
        while ready and len(batch) < capacity:
            task = ready[0]
            if not self._running.has_capacity_for(task):
                break
            if task.outgoing is None and allowed <= 0:
                break
            ready.popleft()
            if task.owner.closed or (task.owner.draining and task.outgoing is None):
                continue
            if throttle.active and task.outgoing is None and not self._passes(task, now):
                continue
            if task.crashes and task.outgoing is None:
                if self._suspect is not None:
                    self._suspects.append(task)
                    continue
                self._suspect = task
            if task.outgoing is None:
                allowed -= 1
            self._running.start(task)
            batch.append(task)
        return batch

    def _passes(self, task: Task, now: float) -> bool:
        """Whether the limits let it begin now; if not, apply the decision to it."""
        decision = self._throttle.decide(task, now)
        if decision is ThrottleDecision.WAIT:
            self._pending.hold(task)
        elif decision is ThrottleDecision.SKIP:
            self._running.start(task)
            self._mailbox.put(Completion(task, self._mailbox), None)
        elif decision is ThrottleDecision.DEAD_LETTER:
            self._failures.to_dead_letters(task, "blocked_key", None)
        elif decision is ThrottleDecision.DIVERT:
            task.outgoing, task.outgoing_kind = self._throttle.diverted(task.record), "divert"
            self._ready.appendleft(task)
        return decision is ThrottleDecision.PASS

    def _stop(self, task: Task) -> None:
        self._running.stop(task)
        if task is self._suspect:
            self._suspect = None
            if self._suspects:
                self._ready.append(self._suspects.popleft())

    def _again(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            task.stage = 0
            self._ready.appendleft(task)

    def _ready_first(self, task: Task) -> None:
        self._ready.appendleft(task)
