"""Executors that pass many records to a handler at once: as a list, or as the columns of a range of a partition.

A handler returns None when all records are done, or one result per record: None or an exception. If it raises, all
records failed. A failed record is tried again alone, so that it cannot fail others.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tsdb.parallel_consumer.batching import Batcher, BatchSize
from tsdb.parallel_consumer.columns import Columns
from tsdb.parallel_consumer.errors import Misanswered, SomeFailed
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.runtimes import EventLoop, Threads
from tsdb.parallel_consumer.work import Ending

Results = Sequence[BaseException | None] | None
BatchHandler = Callable[[list[Record]], Results] | Callable[[list[Record]], Awaitable[Results]]
ColumnHandler = Callable[[Columns], Results] | Callable[[Columns], Awaitable[Results]]
Gathered = tuple[Record, Ending]


class InBatches:
    """Batches of records, at most one of each lane per batch: sync handlers on threads, async ones on a loop.

    Options.concurrency counts records: set it to `parallel` times the batch size, or batches are smaller.
    """

    def __init__(
        self, handler: BatchHandler, size: BatchSize | None = None, *, parallel: int = 4, name: str = "batch"
    ) -> None:
        self._batcher: Batcher[Gathered] = Batcher(size or BatchSize())
        self._runs = _Runs(handler, _tell_each, parallel, name)

    def start(self) -> None:
        self._runs.start()

    def submit(self, record: Record, done: Ending) -> None:
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
        self._runs.close()

    def _run(self, batch: list[Gathered]) -> None:
        self._runs.put([record for record, _ in batch], [done for _, done in batch])


class InColumns:
    """Ranges of a partition as columns: one poll's records of it, at most Options.poll_records_max.

    Ordered by partition, one range of a partition runs at a time, which keeps keys in order too; unordered, many do. A
    range that was running at a crash runs again in smaller ranges, one at a time, until the failing row is alone.
    """

    def __init__(self, handler: ColumnHandler, *, parallel: int = 2, name: str = "columns") -> None:
        self._runs = _Runs(handler, tell_block, parallel, name)

    def start(self) -> None:
        self._runs.start()

    def submit(self, record: Record, done: Ending) -> None:
        self._runs.put(Columns.of([record]), [done])

    def submit_columns(self, columns: Columns, done: Ending) -> None:
        self._runs.put(columns, [done])

    def close(self) -> None:
        self._runs.close()


Tell = Callable[[list[Ending], int, Any], None]
Job = tuple[Any, list[Ending]]


class _Runs:
    """Calls a handler, sync or async, and reports its result."""

    def __init__(self, handler: Callable[[Any], Any], tell: Tell, parallel: int, name: str) -> None:
        self._handler = handler
        self._tell = tell
        call = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
        self._on: Threads | EventLoop = (
            EventLoop(name) if inspect.iscoroutinefunction(call) else Threads(self._call, parallel, name)
        )

    def start(self) -> None:
        self._on.start()

    def put(self, given: Any, endings: list[Ending]) -> None:
        if isinstance(self._on, EventLoop):
            self._on.spawn(self._call_async, (given, endings))
        else:
            self._on.put((given, endings))

    def close(self) -> None:
        self._on.close()

    def _call(self, job: Job) -> None:
        given, endings = job
        try:
            results = self._handler(given)
        except BaseException as error:
            results = error
        self._tell(endings, len(given), results)

    async def _call_async(self, job: Job) -> None:
        given, endings = job
        try:
            results = await self._handler(given)
        except Exception as error:
            results = error
        except BaseException as error:
            self._tell(endings, len(given), error)
            raise
        self._tell(endings, len(given), results)


def _tell_each(endings: list[Ending], count: int, results: Any) -> None:
    answer = _checked(results, count)
    for row, ending in enumerate(endings):
        ending(answer if isinstance(answer, BaseException) else answer.get(row))


def tell_block(endings: list[Ending], count: int, results: Any) -> None:
    """Complete a block with the result or exception of its handler."""
    (ending,) = endings
    answer = _checked(results, count)
    if isinstance(answer, BaseException):
        ending(answer)
    elif not answer:
        ending(None)
    elif len(answer) == 1 == count:
        ending(answer[0])
    else:
        ending(SomeFailed(answer))


def _checked(results: Any, count: int) -> BaseException | dict[int, BaseException]:
    """The error of the whole batch, or errors by row."""
    if results is None or isinstance(results, BaseException):
        return results or {}
    if not isinstance(results, Sequence) or len(results) != count:
        return Misanswered(f"{count} records were answered with {str(results)[:100]}")
    strange = [one for one in results if one is not None and not isinstance(one, BaseException)]
    if strange:
        return Misanswered(f"a result is {str(strange[0])[:100]}, neither None nor an exception")
    return {row: one for row, one in enumerate(results) if one is not None}
