"""Admission: routes records that were read and fit the map: to the inline handler, into their lanes, or into the wait
for a newer record of their key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from tsdb.parallel_consumer.blocks import block_work
from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.columns import Columns
from tsdb.parallel_consumer.compaction import Newest
from tsdb.parallel_consumer.errors import Misused
from tsdb.parallel_consumer.executors import Executor
from tsdb.parallel_consumer.metadata import Tries
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Order, Place, by_key, by_partition, unordered
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.policy import ErrorPolicy
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.runner import Runner
from tsdb.parallel_consumer.throttle import Throttle
from tsdb.parallel_consumer.tried import Tried, rows_apart
from tsdb.parallel_consumer.work import Work

STRAIGHT_S = 0.05  # Then the source and the commits get their turn.

_offset_of = itemgetter(2)

Finish = Callable[[Sequence[Work]], None]
Passed = Callable[[PartitionWork, Sequence[Record]], None]


class Admission:
    """finish(works): called with tasks finished without running. passed(partition, records): with finished records that
    never became a task. All records of one call are of one partition and in order.
    """

    def __init__(
        self,
        executor: Executor,
        runner: Runner,
        throttle: Throttle,
        order: Order,
        policy: ErrorPolicy,
        options: Options,
        metrics: ConsumerMetrics,
        clock: Clock,
        finish: Finish,
        passed: Passed,
    ) -> None:
        self._runner = runner
        self._throttle = throttle
        self._order = order
        self._policy = policy
        self._options = options
        self._metrics = metrics
        self._clock = clock
        self._finish = finish
        self._passed = passed
        self._newest = Newest()
        self._handler_here = getattr(executor, "handler_here", None)
        self.columns = hasattr(executor, "submit_columns")
        if self.columns and order not in (by_key, by_partition, unordered):
            raise Misused("columns are ordered by partition (which keeps keys in order too) or not at all")

    def straight(self, part: PartitionWork) -> bool:
        """Run the backlog in the inline handler as far as allowed; whether the rest of it must wait
        for the next step.
        """
        handler = self._handler_here() if self._handler_here is not None else None
        if handler is None:
            return False
        until = self._clock.monotonic() + STRAIGHT_S
        while part.backlog and self._may_go_straight(part):
            records = list(part.backlog)
            done, error = self._call(handler, records, until, part)
            if error is not None:
                self._fell(part, records[done], error)
            elif done < len(records):
                return True
        return False

    def admit(self, part: PartitionWork, records: Iterable[Record]) -> None:
        """Track the records, and offer them to run."""
        add, order, tries = part.tracker.add, self._order, part.tries
        newest_wins_s = self._throttle.control.newest_wins_s
        for record in records:
            slot = add(record.offset)
            if slot is None:
                self._finished_before(part, record)
                continue
            size = len(record.key or b"") + len(record.value or b"")
            work = Work(record, slot, part, order(record), size)
            if tries:
                for one in tries.take(record.offset, record.offset + 1):
                    self._remember(part, work, one)
            if newest_wins_s and record.key is not None and not isinstance(work.lane, Place):
                self._wait_for_newer(work, newest_wins_s)
            elif work.lane is Place.AFTER_ALL:
                part.barriers.append(work)
            elif part.lanes.enter(work):
                self._runner.offer(work)

    def admit_columns(self, part: PartitionWork, columns: Columns) -> None:
        """As admit, for a block."""
        slot, known = part.tracker.add_block(columns.offsets)
        lane = Place.FREE if self._order is unordered else ""
        for _, before in columns.stretches(known):
            records = [before.record(row) for row in range(len(before))]
            self._metrics.ignored.labels("finished_before").inc(len(records))
            self._passed(part, records)
            part.dirty = True
        for start, block in columns.stretches(~known):
            for row, piece, tries in _apart(block, part.tries, self._policy.crashes_max):
                work = block_work(piece, slot + start + row, part, lane)
                if tries is not None:
                    self._remember(part, work, tries)
                if part.lanes.enter(work):
                    self._runner.offer(work)

    def advance(self) -> bool:
        """Offer tasks whose wait for a newer record is over; whether there were any."""
        due = self._newest.take_due(self._clock.monotonic())
        for work in due:
            entered, older = work.owner.lanes.enter_newest(work)
            if older is not None:
                self._supersede(older)
            if entered:
                self._runner.offer(work)
        return bool(due)

    def due_in_s(self) -> float | None:
        """Seconds until `advance` has something; None: no task waits."""
        return self._newest.due_in_s(self._clock.monotonic())

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions."""
        self._newest.drop_closed()

    def _may_go_straight(self, part: PartitionWork) -> bool:
        """Whether running records inline has the same result as running them through their lanes.

        A crash is counted only for records that a commit marks as running: so not in the first seconds of an
        assignment, when a record that crashed the process is read again.
        """
        if self._order is not unordered and (self._order not in (by_key, by_partition) or len(part.lanes)):
            return False
        if part.draining or part.barriers or part.tries or part.tracker.restored:
            return False
        if not self._throttle.straight or self._throttle.control.newest_wins_s:
            return False
        if self._options.commit_records is not None:
            return False
        since = self._clock.monotonic() - self._options.write_ahead_s
        return self._policy.crashes_max is None or part.assigned_at <= since

    def _call(
        self, handler: Callable[[Record], object], records: list[Record], until: float, part: PartitionWork
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

    def _pass(self, part: PartitionWork, records: list[Record]) -> None:
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

    def _fell(self, part: PartitionWork, record: Record, error: Exception) -> None:
        part.backlog.popleft()
        slot = part.tracker.add(record.offset)
        assert slot is not None, "handled though finished before"
        work = Work(record, slot, part, self._order(record), record.size)
        entered = part.lanes.enter(work)
        assert entered, "handled though its lane was taken"
        self._runner.fell(work, error)

    def _finished_before(self, part: PartitionWork, record: Record) -> None:
        self._metrics.ignored.labels("finished_before").inc()
        self._passed(part, [record])
        part.dirty = True

    @staticmethod
    def _remember(part: PartitionWork, work: Work, tries: Tries) -> None:
        work.failures, work.crashes = tries.failures, tries.crashes
        part.touched[work.slot] = work

    def _wait_for_newer(self, work: Work, linger_s: float) -> None:
        older = self._newest.put(work, self._clock.monotonic(), linger_s)
        if older is not None:
            self._supersede(older)

    def _supersede(self, older: Work) -> None:
        older.lane = Place.FREE  # It has not entered a lane yet, or has left it.
        self._metrics.ignored.labels("superseded").inc()
        self._finish([older])


def _apart(block: Columns, tried: Tried, crashes_max: int | None) -> Iterator[tuple[int, Columns, Tries | None]]:
    """Pieces of a block, each with its first row. Rows tried before are in separate pieces, smaller after each crash of
    the process with them.
    """
    offsets, at = block.offsets, 0
    for one in tried.take(int(offsets[0]), int(offsets[-1]) + 1):
        start, end = offsets.searchsorted([one.offset, one.end]).tolist()
        if at < start:
            yield at, block.part(at, start), None
        size = rows_apart(end - start, one.crashes, crashes_max)
        if crashes_max is not None and one.span > 1:
            # A row becomes a dead letter only for a crash in which it ran alone.
            one = replace(one, crashes=min(one.crashes, crashes_max - 1))
        for row in range(start, end, max(size, 1)):
            yield row, block.part(row, min(row + size, end)), one
        at = max(at, end)
    if at < len(block):
        yield at, block.part(at, len(block)), None
