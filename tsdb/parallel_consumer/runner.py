"""Runner: what is ready, what runs, what waits for its next try; and what becomes of a record that failed.

A blocked record keeps its place among the running: once all places are blocked nothing new begins, and what is away is
asked ever less often. One thread; completions come through the mailbox.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.errors import HandlerStopped, SendFailed
from tsdb.parallel_consumer.executors import Executor
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.outlet import Outlet, Story, dead_letter, requeued, rounds_left, without_value
from tsdb.parallel_consumer.policy import Action, ErrorPolicy
from tsdb.parallel_consumer.work import Completion, Mailbox, Work

ERROR_CHARS_MAX = 300

WriteAhead = Callable[[list[Work]], bool]


class Runner:
    """`failure`: what ended the consumer, once something has. busy: running and blocked records."""

    def __init__(
        self,
        executor: Executor,
        mailbox: Mailbox,
        options: Options,
        policy: ErrorPolicy,
        outlet: Outlet | None,
        dead_letter_topic: str,
        metrics: ConsumerMetrics,
        clock: Clock,
        source: random.Random,
    ) -> None:
        self._executor = executor
        self._mailbox = mailbox
        self._options = options
        self._policy = policy
        self._outlet = outlet
        self._dead_letter_topic = dead_letter_topic
        self._metrics = metrics
        self._clock = clock
        self._random = source
        self._ready: deque[Work] = deque()
        self._timers: list[tuple[float, int, Work, int]] = []  # When due, tie-breaker, what, of which run.
        self._numbers = itertools.count()
        self._running: set[Work] = set()
        self._running_bytes = 0
        self._waiting: set[Work] = set()  # For their next try, the blocked among them.
        self._blocked: set[Work] = set()
        self._succeeded_since_block = True
        self._suspect: Work | None = None  # Of those that may have ended the process, one runs at a time.
        self._suspects: deque[Work] = deque()
        self.failure: BaseException | None = None

    @property
    def busy(self) -> int:
        return len(self._running) + len(self._blocked)

    @property
    def ready(self) -> int:
        """Records that could begin."""
        return len(self._ready)

    @property
    def blocked(self) -> int:
        """Records that wait for something that is away."""
        return len(self._blocked)

    def unended(self) -> Iterable[Work]:
        """All that was begun and has not ended."""
        return itertools.chain(self._running, self._waiting)

    def offer(self, work: Work) -> None:
        """It may run now. One that was running at too many ends of the process is given up instead."""
        crashes_max = self._policy.crashes_max
        if crashes_max is not None and work.crashes >= crashes_max and work.letter is None:
            self._to_dead_letters(work, "crashes", None)
        else:
            self._ready.append(work)

    def next_due_in_s(self) -> float | None:
        """Seconds until the next try is due."""
        return max(0.0, self._timers[0][0] - self._clock.monotonic()) if self._timers else None

    def wake_due(self) -> bool:
        """Make ready what has waited long enough; whether there was any."""
        now, moved = self._clock.monotonic(), False
        while self._timers and self._timers[0][0] <= now:
            _, _, work, run = heapq.heappop(self._timers)
            if work in self._waiting and work.run == run:
                self._again(work)
                moved = True
        return moved

    def begin(self, write_ahead: WriteAhead) -> bool:
        """Start what is ready, as far as there is room; whether anything was.

        `write_ahead` is asked first, with the works marked as running; when it refuses, none begins.
        """
        batch = self._choose()
        if not batch:
            return False
        if not write_ahead(batch):
            for work in reversed(batch):
                self._stop(work)
                self._ready.appendleft(work)
            return False
        for work in batch:
            done = partial(self._mailbox.put, work, work.run)
            if work.letter is None:
                self._executor.submit(work.record, done)
            else:
                assert self._outlet is not None, "a letter without an outlet"
                self._outlet.send(work.letter, done)
        return True

    def settle(self, completions: Iterable[Completion]) -> list[Work]:
        """Take what has ended; returns the works that are finished, of partitions that are still ours."""
        finished: list[Work] = []
        for completion in completions:
            work = completion.work
            if not work.running or completion.run != work.run:
                self._metrics.ignored.labels("late").inc()
                continue
            self._stop(work)
            if work.owner.closed:
                self._metrics.ignored.labels("late").inc()
            elif self._ends(work, completion.error):
                finished.append(work)
        return finished

    def drop_closed(self) -> None:
        """Forget what belongs to partitions that have gone; what still runs keeps its place until it ends."""
        for work in [work for work in self._waiting if work.owner.closed]:
            self._waiting.discard(work)
            self._blocked.discard(work)
        self._ready = deque(work for work in self._ready if not work.owner.closed)
        self._suspects = deque(work for work in self._suspects if not work.owner.closed)

    def _choose(self) -> list[Work]:
        batch: list[Work] = []
        while self._ready and self.busy < self._options.concurrency:
            work = self._ready[0]
            if self._running and self._running_bytes + work.record.size > self._options.running_bytes_max:
                break
            self._ready.popleft()
            if work.owner.closed or (work.owner.draining and work.letter is None):
                continue
            if work.crashes and work.letter is None:
                if self._suspect is not None:
                    self._suspects.append(work)
                    continue
                self._suspect = work
            self._start(work)
            batch.append(work)
        return batch

    def _start(self, work: Work) -> None:
        work.running = True
        work.run += 1
        if work.began_at is None:
            work.began_at = self._clock.monotonic()
        self._running.add(work)
        self._running_bytes += work.record.size
        work.owner.running += 1
        if self._policy.crashes_max is not None:
            work.owner.touched[work.slot] = work
            work.owner.dirty = True

    def _stop(self, work: Work) -> None:
        work.running = False
        self._running.discard(work)
        self._running_bytes -= work.record.size
        work.owner.running -= 1
        if work is self._suspect:
            self._suspect = None
            if self._suspects:
                self._ready.append(self._suspects.popleft())

    def _ends(self, work: Work, error: BaseException | None) -> bool:
        if error is None:
            if work.letter is not None:
                self._metrics.sent.labels(work.letter_kind).inc()
            self._wake_blocked()
            return True
        work.error = f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]
        if work.letter is not None:
            self._not_sent(work, error)
            return False
        return self._failed(work, error)

    def _failed(self, work: Work, error: BaseException) -> bool:
        action, reason = self._policy.action(error), "exception"
        if action is Action.RETRY:
            work.failures += 1
            work.owner.touched[work.slot] = work
            work.owner.dirty = True
            if work.failures >= self._policy.attempts_max:
                action, reason = self._policy.exhausted, "attempts"
        self._metrics.failures.labels(action.value).inc()
        if action is Action.RETRY:
            self._later(work, self._policy.retry_backoff.delay_s(work.failures, self._random))
        elif action is Action.BLOCK:
            self._block(work)
        elif action is Action.DEAD_LETTER:
            self._to_dead_letters(work, reason, error)
        elif action is Action.REQUEUE:
            self._requeue(work, error)
        elif action is Action.FATAL:
            self._fail(work, error)
        return action is Action.SKIP

    def _fail(self, work: Work, error: BaseException) -> None:
        record = work.record
        place = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
        self.failure = HandlerStopped(f"{place}: {work.error}")
        self.failure.__cause__ = error

    def _to_dead_letters(self, work: Work, reason: str, error: BaseException | None) -> None:
        story = Story(reason, error, work.failures, work.crashes, self._clock.now_ms())
        work.letter, work.letter_kind = dead_letter(self._dead_letter_topic, work.record, story), "dead_letter"
        self._ready.appendleft(work)

    def _requeue(self, work: Work, error: BaseException) -> None:
        left = rounds_left(work.record, self._policy.requeues_max)
        if left <= 0:
            self._to_dead_letters(work, "requeues", error)
            return
        work.letter, work.letter_kind = requeued(work.record, left - 1), "requeue"
        self._ready.appendleft(work)

    def _not_sent(self, work: Work, error: BaseException) -> None:
        assert work.letter is not None, "only letters are sent"
        self._metrics.send_failures.inc()
        too_large = isinstance(error, SendFailed) and error.reason == "record_too_large"
        if too_large and work.letter.value is not None:
            work.letter = without_value(work.letter)
            self._ready.appendleft(work)
        else:
            self._block(work)

    def _block(self, work: Work) -> None:
        work.blocked += 1
        if work.blocked == 1:
            self._succeeded_since_block = False
        self._blocked.add(work)
        self._later(work, self._policy.block_backoff.delay_s(work.blocked, self._random))

    def _later(self, work: Work, delay_s: float) -> None:
        self._waiting.add(work)
        due = self._clock.monotonic() + delay_s
        heapq.heappush(self._timers, (due, next(self._numbers), work, work.run))

    def _again(self, work: Work) -> None:
        self._waiting.discard(work)
        self._blocked.discard(work)
        self._ready.appendleft(work)

    def _wake_blocked(self) -> None:
        # The first success after an outage ends everybody's pause. Only the first: a record that alone is blocked must
        # not be tried again each time that another succeeds.
        if self._succeeded_since_block:
            return
        self._succeeded_since_block = True
        for work in sorted(self._blocked, key=lambda work: -work.slot):
            self._again(work)
