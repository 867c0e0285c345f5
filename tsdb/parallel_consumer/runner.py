"""Runner: tasks that are ready, running, or waiting for their next attempt.

Records that wait behind one another in a lane are handed over together as a streak, if the executor supports streaks
and no decision is needed in between. A streak uses one slot, and gives it up soon when others want it.

A blocked record keeps its slot: once all slots are blocked no record begins, and the unavailable dependency is tried
ever less often. One thread; completions come through the mailbox.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.dead_letter_topic import DeadLetterTopic
from tsdb.parallel_consumer.executors import Executor
from tsdb.parallel_consumer.failures import Failures
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.outlet import Outlet
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.pending import Pending
from tsdb.parallel_consumer.policy import ErrorPolicy
from tsdb.parallel_consumer.running import Running
from tsdb.parallel_consumer.throttle import Throttle, Verdict
from tsdb.parallel_consumer.work import Ended, Ending, Mailbox, Work

WriteAhead = Callable[[list[Work]], bool]


class Runner:
    """busy: running and blocked records; a streak counts as one."""

    def __init__(
        self,
        executor: Executor,
        mailbox: Mailbox,
        options: Options,
        policy: ErrorPolicy,
        outlet: Outlet | None,
        dead_letter_topic: DeadLetterTopic,
        metrics: ConsumerMetrics,
        log: LimitedLog,
        clock: Clock,
        randomness: random.Random,
        throttle: Throttle,
    ) -> None:
        self._executor = executor
        self._submit_columns = getattr(executor, "submit_columns", None)
        self._submit_streak = getattr(executor, "submit_streak", None)
        self._flush = getattr(executor, "flush", None)
        self._gathered_due_in_s = getattr(executor, "due_in_s", None)
        self._throttle = throttle
        self._mailbox = mailbox
        self._policy = policy
        self._outlet = outlet
        self._metrics = metrics
        self._clock = clock
        self._ready: deque[Work] = deque()
        self._running = Running(options, policy, throttle, mailbox, clock)
        self._pending = Pending()
        self._suspect: Work | None = None  # Only one record that was running at a crash runs at a time.
        self._suspects: deque[Work] = deque()
        self._failures = Failures(
            policy,
            dead_letter_topic,
            metrics,
            log,
            clock,
            randomness,
            throttle,
            self._pending,
            self._ready_first,
            self.offer,
        )

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
        """Blocked tasks by cause: those that wait, and those being tried again."""
        held = [work for work in itertools.chain(self._running, self._pending.held_up()) if work.blocked]
        by_outlet = sum(work.letter is not None for work in held)
        return {"handler": len(held) - by_outlet, "outlet": by_outlet}

    @property
    def unhurried(self) -> bool:
        """Whether tasks may have completed without waking the consumer."""
        return bool(self._running)

    def unended(self) -> Iterable[Work]:
        """All tasks begun and not ended."""
        return itertools.chain(self._running, self._pending)

    def offer(self, work: Work) -> None:
        """The task may run now. One that was running at crashes_max crashes becomes a dead letter instead."""
        crashes_max = self._policy.crashes_max
        if crashes_max is not None and work.crashes >= crashes_max and work.letter is None:
            self._failures.give_up(work, "crashes", None)
        else:
            self._ready.append(work)

    def next_due_in_s(self) -> float | None:
        """Seconds until something is due that nothing else wakes the consumer for; None: nothing is."""
        now = self._clock.monotonic()
        asked = [self._pending.due_in_s, self._throttle.due_in_s]
        if self._gathered_due_in_s is not None:
            asked.append(self._gathered_due_in_s)
        return min((due_s for ask in asked if (due_s := ask(now)) is not None), default=None)

    def wake_due(self) -> bool:
        """Make ready all tasks whose waiting time is over; whether there were any."""
        now = self._clock.monotonic()
        changed = self._throttle.changed()
        if changed is not None or not self._throttle.straight:
            self._ready.extend(self._running.recall())
        let_through = changed or self._throttle.release(now)
        passed = [work for work in let_through if self._pending.take(work)]
        self._ready.extend(passed)
        due = self._pending.take_due(now)
        self._again(due)
        return bool(passed or due)

    def begin(self, write_ahead: WriteAhead) -> bool:
        """Start ready tasks as far as there are slots; whether any started.

        `write_ahead` is called first, with the tasks marked as running; when it returns False, none begins.
        """
        batch = self._choose() if self._ready else []
        begun = bool(batch) and self._begin(batch, write_ahead)
        if self._flush is not None:
            self._flush(self._clock.monotonic())
        return begun

    def settle(self, ended: Iterable[Ended]) -> list[Work]:
        """Process completions; returns the finished tasks of partitions that are still assigned."""
        finished: list[Work] = []
        handled = False
        for ending, error in ended:
            work = ending.work
            if not work.running or ending.run != work.run:
                self._metrics.ignored.labels("late").inc()
                continue
            self._stop(work)
            if work.streak is not None:
                self._running.go_on(work, work.streak, error)
            if work.owner.closed:
                self._metrics.ignored.labels("late").inc()
            elif error is None:
                if work.letter is None:
                    handled = True
                else:
                    self._metrics.sent.labels(work.letter_kind).inc()
                    self._again(self._pending.take_blocked())
                finished.append(work)
            elif self._failures.failed(work, error):
                finished.append(work)
        finished.extend(self._failures.take_parted())
        if handled:
            self.succeeded()
        return finished

    def succeeded(self) -> None:
        """A record succeeded: shared dependencies are available."""
        self._throttle.succeeded()
        self._again(self._pending.take_blocked())

    def fell(self, work: Work, error: BaseException) -> None:
        """A record failed in the inline handler."""
        self._running.start(work)
        self._mailbox.put(Ending(work, self._mailbox), error)

    def recall(self, parts: Collection[PartitionWork]) -> None:
        """Take back handed-over tasks of these partitions that have not begun."""
        self._ready.extend(self._running.recall(parts))

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions; a running one keeps its slot until it ends."""
        self._pending.drop_closed()
        self._throttle.drop_closed()
        self._ready = deque(work for work in self._ready if not work.owner.closed)
        self._suspects = deque(work for work in self._suspects if not work.owner.closed)

    def _begin(self, batch: list[Work], write_ahead: WriteAhead) -> bool:
        if not write_ahead(batch):
            for work in reversed(batch):
                self._stop(work)
                self._ready.appendleft(work)
            return False
        now = self._clock.monotonic()
        self._throttle.began(now)
        mailbox, submit = self._mailbox, self._executor.submit
        submit_streak = self._submit_streak if self._running.may_streak else None
        for work in batch:
            if work.letter is not None:
                assert self._outlet is not None, "a letter without an outlet"
                self._outlet.send(work.letter, Ending(work, mailbox))
            elif work.block is not None:
                assert self._submit_columns is not None, "a block for an executor without columns"
                self._submit_columns(work.block, Ending(work, mailbox))
            elif submit_streak is not None and (streak := self._running.streak_from(work, now)) is not None:
                submit_streak(streak)
            else:
                submit(work.record, Ending(work, mailbox))
        return True

    def _choose(self) -> list[Work]:
        batch: list[Work] = []
        ready, throttle = self._ready, self._throttle
        now = self._clock.monotonic()
        if len(ready) > throttle.slots - self.busy:
            self._running.hurry(now)
        room = throttle.slots - self.busy
        allowed = throttle.allowed(now)
        while ready and len(batch) < room:
            work = ready[0]
            if not self._running.has_room_for(work):
                break
            if work.letter is None and allowed <= 0:
                break
            ready.popleft()
            if work.owner.closed or (work.owner.draining and work.letter is None):
                continue
            if throttle.active and work.letter is None and not self._passes(work, now):
                continue
            if work.crashes and work.letter is None:
                if self._suspect is not None:
                    self._suspects.append(work)
                    continue
                self._suspect = work
            if work.letter is None:
                allowed -= 1
            self._running.start(work)
            batch.append(work)
        return batch

    def _passes(self, work: Work, now: float) -> bool:
        """Whether the limits let it begin now; if not, apply the decision to it."""
        verdict = self._throttle.ask(work, now)
        if verdict is Verdict.WAIT:
            self._pending.hold(work)
        elif verdict is Verdict.SKIP:
            self._running.start(work)
            self._mailbox.put(Ending(work, self._mailbox), None)
        elif verdict is Verdict.DEAD_LETTER:
            self._failures.give_up(work, "blocked_key", None)
        elif verdict is Verdict.DIVERT:
            work.letter, work.letter_kind = self._throttle.diverted(work.record), "divert"
            self._ready.appendleft(work)
        return verdict is Verdict.PASS

    def _stop(self, work: Work) -> None:
        self._running.stop(work)
        if work is self._suspect:
            self._suspect = None
            if self._suspects:
                self._ready.append(self._suspects.popleft())

    def _again(self, works: Iterable[Work]) -> None:
        for work in works:
            work.stage = 0
            self._ready.appendleft(work)

    def _ready_first(self, work: Work) -> None:
        self._ready.appendleft(work)
