"""Executors that pass many records to a handler at once, as a list or as the columns of a range of a partition.

A handler returns None when all records are done, or one result per record: None or an exception. If it raises, all
records failed. A failed record is tried again alone, so that it cannot make others fail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.errors import InvalidResult, SomeFailed
from tsdb.parallel_consumer.executors.batching import Batcher, BatchSize
from tsdb.parallel_consumer.executors.context import is_async
from tsdb.parallel_consumer.executors.runtimes import EventLoop, Threads
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.completion import Completion

Results = Sequence[BaseException | None] | None
BatchHandler = Callable[[list[Record]], Results] | Callable[[list[Record]], Awaitable[Results]]
ColumnHandler = Callable[[RecordColumns], Results] | Callable[[RecordColumns], Awaitable[Results]]
BatchItem = tuple[Record, Completion]


class BatchExecutor:
    """Passes batches of records, with at most one record of each lane. Sync handlers run on threads, async ones on a
    loop."""

    def __init__(
        self, handler: BatchHandler, size: BatchSize | None = None, *, parallel: int = 4, name: str = "batch"
    ) -> None:
        self._batcher: Batcher[BatchItem] = Batcher(size or BatchSize())
        self._runner = _BatchRunner(handler, _complete_each, parallel, name)

    def start(self) -> None:
        self._runner.start()

    def submit(self, record: Record, done: Completion) -> None:
        if done.attempt > 1:
            self._run([(record, done)])
        elif (batch := self._batcher.add((record, done))) is not None:
            self._run(batch)

    def flush(self, now: float) -> None:
        if (batch := self._batcher.settle(now)) is not None:
            self._run(batch)

    def due_in_s(self, now: float) -> float | None:
        return self._batcher.due_in_s(now)

    def close(self) -> None:
        self._runner.close()

    def failure(self) -> BaseException | None:
        return self._runner.failure()

    def _run(self, batch: list[BatchItem]) -> None:
        self._runner.put([record for record, _ in batch], [done for _, done in batch])


class ColumnExecutor:
    """Passes ranges of a partition as columns. A range has the partition's records of one poll, at most
    Options.poll_records_max.

    With order by partition, one range of a partition runs at a time, which keeps keys in order too; without order, many
    run. A range that was running at a crash runs again in smaller ranges, one at a time, until the failing row is
    alone.

    """

    def __init__(self, handler: ColumnHandler, *, parallel: int = 2, name: str = "columns") -> None:
        self._runner = _BatchRunner(handler, complete_block, parallel, name)

    def start(self) -> None:
        self._runner.start()

    def submit(self, record: Record, done: Completion) -> None:
        self._runner.put(RecordColumns.of([record]), [done])

    def submit_columns(self, columns: RecordColumns, done: Completion) -> None:
        self._runner.put(columns, [done])

    def close(self) -> None:
        self._runner.close()

    def failure(self) -> BaseException | None:
        return self._runner.failure()


Complete = Callable[[list[Completion], int, Any], None]
Job = tuple[Any, list[Completion]]


class _BatchRunner:
    """Calls a handler, sync or async, and reports its result."""

    def __init__(self, handler: Callable[[Any], Any], complete: Complete, parallel: int, name: str) -> None:
        self._handler = handler
        self._complete = complete
        self._on: Threads | EventLoop = EventLoop(name) if is_async(handler) else Threads(self._call, parallel, name)

    def start(self) -> None:
        self._on.start()

    def put(self, batch: Any, completions: list[Completion]) -> None:
        if isinstance(self._on, EventLoop):
            self._on.spawn(self._call_async, (batch, completions))
        else:
            self._on.put((batch, completions))

    def close(self) -> None:
        self._on.close()

    def failure(self) -> BaseException | None:
        return self._on.failure

    def _call(self, job: Job) -> None:
        batch, completions = job
        try:
            results = self._handler(batch)
        except BaseException as error:
            results = error
        self._complete(completions, len(batch), results)

    async def _call_async(self, job: Job) -> None:
        batch, completions = job
        try:
            results = await self._handler(batch)
        except Exception as error:
            results = error
        except BaseException as error:
            self._complete(completions, len(batch), error)
            raise
        self._complete(completions, len(batch), results)


def _complete_each(completions: list[Completion], count: int, results: Any) -> None:
    answer = _checked(results, count)
    for row, completion in enumerate(completions):
        completion(answer if isinstance(answer, BaseException) else answer.get(row))


def complete_block(completions: list[Completion], count: int, results: Any) -> None:
    """Complete a block with the result or exception of its handler."""
    (completion,) = completions
    answer = _checked(results, count)
    if isinstance(answer, BaseException):
        completion(answer)
    elif not answer:
        completion(None)
    elif len(answer) == 1 == count:
        completion(answer[0])
    else:
        completion(SomeFailed(answer))


def _checked(results: Any, count: int) -> BaseException | dict[int, BaseException]:
    """The error of the whole batch, or the errors by row."""
    if results is None or isinstance(results, BaseException):
        return results or {}
    if not isinstance(results, Sequence) or len(results) != count:
        return InvalidResult(f"the handler returned {str(results)[:100]} for {count} records")
    strange = [one for one in results if one is not None and not isinstance(one, BaseException)]
    if strange:
        return InvalidResult(f"a result is {str(strange[0])[:100]}, neither None nor an exception")
    return {row: one for row, one in enumerate(results) if one is not None}
