"""Admission: routes records that were read and fit the map: to the inline handler, into their lanes, or into the wait
for a newer record of their key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.errors import InvalidConfig
from tsdb.parallel_consumer.offsets.attempt_history import AttemptHistory, rows_at_once
from tsdb.parallel_consumer.offsets.metadata import AttemptCounts
from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.order import Order, SpecialLane, by_key, by_partition, unordered
from tsdb.parallel_consumer.record import Record, TopicPartition
from tsdb.parallel_consumer.scheduling.blocks import block_task
from tsdb.parallel_consumer.scheduling.environment import Environment
from tsdb.parallel_consumer.scheduling.executor import Executor, SupportsColumns, SupportsInline
from tsdb.parallel_consumer.scheduling.runner import Runner
from tsdb.parallel_consumer.scheduling.task import Task
from tsdb.parallel_consumer.scheduling.throttle import Throttle

INLINE_S = 0.05  # After this time the source and the commits get their turn.

_offset_of = itemgetter(2)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """finish(tasks): called with tasks finished without running. passed(partition, records): with finished records that
    never became a task. All records of one call are of one partition and in order.
    """

    finish: Callable[[Sequence[Task]], None]
    passed: Callable[[PartitionState, Sequence[Record]], None]


class Admission:
    """columns: whether the executor takes blocks. All records of one call are of one partition and in order."""

    def __init__(
        self,
        env: Environment,
        executor: Executor,
        runner: Runner,
        throttle: Throttle,
        order: Order,
        callbacks: Callbacks,
    ) -> None:
        self._runner = runner
        self._throttle = throttle
        self._order = order
        self._policy = env.policy
        self._options = env.options
        self._metrics = env.metrics
        self._clock = env.clock
        self._finish = callbacks.finish
        self._passed = callbacks.passed
        self._newest = NewestByKey()
        self._inline_executor = executor if isinstance(executor, SupportsInline) else None
        self.columns = isinstance(executor, SupportsColumns)
        if self.columns and order not in (by_key, by_partition, unordered):
            raise InvalidConfig("columns are ordered by partition (which keeps keys in order too) or not at all")

    def run_inline(self, part: PartitionState) -> bool:
        """Run the backlog in the inline handler as far as allowed; whether the rest of it must wait
        for the next step.
        """
        handler = self._inline_executor.inline_handler() if self._inline_executor is not None else None
        if handler is None:
            return False
        until = self._clock.monotonic() + INLINE_S
        while part.backlog and self._may_run_inline(part):
            records = list(part.backlog)
            done, error = self._call(handler, records, until, part)
            if error is not None:
                self._failed_inline(part, records[done], error)
            elif done < len(records):
                return True
        return False

    def admit(self, part: PartitionState, records: Iterable[Record]) -> None:
        """Track the records, and offer them to run."""
        add, order, attempts = part.tracker.add, self._order, part.attempts
        newest_wins_s = self._throttle.control.newest_wins_s
        for record in records:
            slot = add(record.offset)
            if slot is None:
                self._finished_before(part, record)
                continue
            size = len(record.key or b"") + len(record.value or b"")
            task = Task(record, slot, part, order(record), size)
            if attempts:
                for one in attempts.take(record.offset, record.offset + 1):
                    self._remember(part, task, one)
            if newest_wins_s and record.key is not None and not isinstance(task.lane, SpecialLane):
                self._wait_for_newer(task, newest_wins_s)
            elif task.lane is SpecialLane.BARRIER:
                part.barriers.append(task)
            elif part.lanes.enter(task):
                self._runner.offer(task)

    def admit_columns(self, part: PartitionState, columns: RecordColumns) -> None:
        """Does what `admit` does, for a block."""
        slot, known = part.tracker.add_block(columns.offsets)
        lane = SpecialLane.UNORDERED if self._order is unordered else ""
        for _, before in columns.ranges(known):
            records = [before.record(row) for row in range(len(before))]
            self._metrics.ignored.labels("finished_before").inc(len(records))
            self._passed(part, records)
            part.dirty = True
        for start, block in columns.ranges(~known):
            for row, piece, attempts in _pieces(block, part.attempts, self._policy.crashes_max):
                task = block_task(piece, slot + start + row, part, lane)
                if attempts is not None:
                    self._remember(part, task, attempts)
                if part.lanes.enter(task):
                    self._runner.offer(task)

    def advance(self) -> bool:
        """Offer tasks whose wait for a newer record is over; whether there were any."""
        due = self._newest.take_due(self._clock.monotonic())
        for task in due:
            entered, older = task.owner.enter_newest(task)
            if older is not None:
                self._supersede(older)
            if entered:
                self._runner.offer(task)
        return bool(due)

    def due_in_s(self) -> float | None:
        """Seconds until `advance` has something; None: no task waits."""
        return self._newest.due_in_s(self._clock.monotonic())

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions."""
        self._newest.drop_closed()

    def _may_run_inline(self, part: PartitionState) -> bool:
        """Whether running records inline has the same result as running them through their lanes.

        A crash is counted only for records that a commit marks as running: so not in the first seconds of an
        assignment, when a record that crashed the process is read again.
        """
        if self._order is not unordered and (self._order not in (by_key, by_partition) or len(part.lanes)):
            return False
        if part.draining or part.barriers or part.attempts or part.tracker.restored:
            return False
        if not self._throttle.unrestricted or self._throttle.control.newest_wins_s:
            return False
        if self._options.commit_records is not None:
            return False
        since = self._clock.monotonic() - self._options.write_ahead_s
        return self._policy.crashes_max is None or part.assigned_at <= since

    def _call(
        self, handler: Callable[[Record], object], records: list[Record], until: float, part: PartitionState
    ) -> tuple[int, Exception | None]:
        """Returns how many records were handled, and the exception of the next one."""
        monotonic = self._clock.monotonic
        done, failed = 0, None
        try:
            for record in records:
                handler(record)
                done += 1
                if monotonic() >= until:
                    break
        except Exception as error:
            failed = error
        finally:
            if done:
                self._pass(part, records[:done])
        return done, failed

    def _pass(self, part: PartitionState, records: list[Record]) -> None:
        part.tracker.pass_over(map(_offset_of, records), records[-1].offset)
        if len(records) == len(part.backlog):
            part.backlog.clear()
        else:
            for _ in records:
                part.backlog.popleft()
        part.dirty = True
        self._passed(part, records)
        self._metrics.finished.inc(len(records))
        self._runner.succeeded()

    def _failed_inline(self, part: PartitionState, record: Record, error: Exception) -> None:
        part.backlog.popleft()
        slot = part.tracker.add(record.offset)
        assert slot is not None, "handled though finished before"
        task = Task(record, slot, part, self._order(record), record.size)
        entered = part.lanes.enter(task)
        assert entered, "handled though its lane was taken"
        self._runner.failed_inline(task, error)

    def _finished_before(self, part: PartitionState, record: Record) -> None:
        self._metrics.ignored.labels("finished_before").inc()
        self._passed(part, [record])
        part.dirty = True

    @staticmethod
    def _remember(part: PartitionState, task: Task, attempts: AttemptCounts) -> None:
        task.failures, task.crashes = attempts.failures, attempts.crashes
        part.touched[task.slot] = task

    def _wait_for_newer(self, task: Task, linger_s: float) -> None:
        older = self._newest.put(task, self._clock.monotonic(), linger_s)
        if older is not None:
            self._supersede(older)

    def _supersede(self, older: Task) -> None:
        older.lane = SpecialLane.UNORDERED  # The task has not entered a lane yet, or has left it.
        self._metrics.ignored.labels("superseded").inc()
        self._finish([older])


def _pieces(
    block: RecordColumns, history: AttemptHistory, crashes_max: int | None
) -> Iterator[tuple[int, RecordColumns, AttemptCounts | None]]:
    """Pieces of a block, each with its first row. Rows that were tried before are in separate pieces, which get smaller
    after each crash of the process with them."""
    offsets, at = block.offsets, 0
    for one in history.take(int(offsets[0]), int(offsets[-1]) + 1):
        start, end = offsets.searchsorted([one.offset, one.end]).tolist()
        if at < start:
            yield at, block.part(at, start), None
        size = rows_at_once(end - start, one.crashes, crashes_max)
        if crashes_max is not None and one.span > 1:
            # A row becomes a dead letter only for a crash in which it ran alone.
            one = replace(one, crashes=min(one.crashes, crashes_max - 1))
        for row in range(start, end, max(size, 1)):
            yield row, block.part(row, min(row + size, end)), one
        at = max(at, end)
    if at < len(block):
        yield at, block.part(at, len(block)), None


class NewestByKey:
    """Compaction: tasks that wait for a newer record of their key, which replaces them.

    The oldest record starts the window, and a newer one does not extend it: a constantly written key is handled once
    per window.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[TopicPartition, bytes | None], Task] = {}
        self._due: deque[tuple[float, tuple[TopicPartition, bytes | None]]] = deque()

    def put(self, task: Task, now: float, linger_s: float) -> Task | None:
        """Add a task; returns the task it replaces."""
        key = task.owner.topic_partition, task.record.key
        older = self._waiting.get(key)
        self._waiting[key] = task
        if older is None:
            self._due.append((now + linger_s, key))
        return older

    def take_due(self, now: float) -> list[Task]:
        """Remove and return tasks whose window is over, oldest first."""
        taken: list[Task] = []
        while self._due and self._due[0][0] <= now:
            _, key = self._due.popleft()
            if key in self._waiting:
                taken.append(self._waiting.pop(key))
        return taken

    def due_in_s(self, now: float) -> float | None:
        """Seconds until the next task is due; None when no task waits."""
        return max(0.0, self._due[0][0] - now) if self._due else None

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions."""
        self._waiting = {key: task for key, task in self._waiting.items() if not task.owner.closed}
        self._due = deque(item for item in self._due if item[1] in self._waiting)
