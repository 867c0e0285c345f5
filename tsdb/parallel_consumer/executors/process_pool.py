"""ProcessPool: has processes that call one handler on chunks of records. One thread for each process sends the chunks.

A process that ends fails its whole chunk and is replaced; the records of the chunk are then tried alone, which finds
the one that ended it.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tsdb.parallel_consumer.errors import ConsumerError, InvalidConfig, WorkerDied
from tsdb.parallel_consumer.executors.runtimes import Threads
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.completion import Completion

Chunk = list[tuple[Record, Completion]]
OnChunk = Callable[[float, int], None]  # Processor seconds used by the handler, and records.
Handler = Callable[[Record], object]

# Never fork, because the client library has threads, and a fork copies their locks in any state.
_processes = multiprocessing.get_context("spawn")


class ProcessPool:
    """on_chunk is called from the pool's threads. Raises InvalidConfig for a handler that other processes cannot
    import.
    """

    def __init__(self, handler: Handler, count: int, on_chunk: OnChunk, name: str) -> None:
        try:
            self._handler = pickle.dumps(handler)
        except Exception as error:
            raise InvalidConfig(f"{handler!r} cannot be sent to another process: {error}") from error
        self._on_chunk = on_chunk
        self._name = name
        self._free: list[_Worker] = []
        self._threads = Threads(self._run, count, name)
        self._closed = False

    def start(self) -> None:
        self._threads.start()

    def put(self, chunk: Chunk) -> None:
        """A free process takes the chunk."""
        self._threads.put(chunk)

    def close(self) -> None:
        """End the processes, without waiting for busy ones."""
        self._closed = True
        self._threads.close()
        self._close_free()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended one of the threads."""
        return self._threads.failure

    def _close_free(self) -> None:
        while (worker := self._take_free()) is not None:
            worker.close()

    def _take_free(self) -> _Worker | None:
        try:
            return self._free.pop()  # It is one step, so that only one of two threads that see a worker gets it.
        except IndexError:
            return None

    def _run(self, chunk: Chunk) -> None:
        worker: _Worker | None = None
        try:
            worker = self._take_free() or _Worker(self._handler, self._name)
            errors, seconds = worker.call([record for record, _ in chunk])
        except Exception as error:
            code = worker.close() if worker is not None else None
            for _, done in chunk:
                done(WorkerDied(f"the process of a chunk of {len(chunk)} records ended with code {code}: {error!r}"))
            return
        self._free.append(worker)
        if self._closed:  # Read after the append, because `close` may have come before it.
            self._close_free()
        self._on_chunk(seconds, len(chunk))
        for (_, done), failed in zip(chunk, errors, strict=True):
            done(failed)


class _Worker:
    """One process and its pipe."""

    def __init__(self, handler: bytes, name: str) -> None:
        self._line, theirs = _processes.Pipe()
        self._process: BaseProcess = _processes.Process(
            target=_process_main, args=(theirs, handler), name=name, daemon=True
        )
        self._process.start()
        theirs.close()

    def call(self, records: Sequence[Record]) -> tuple[list[BaseException | None], float]:
        """Errors by record, and the processor seconds of the call. Raises EOFError or OSError when the process
        ended."""
        # Plain tuples: pickle would name the class in every record.
        self._line.send([tuple(record) for record in records])
        errors, seconds = self._line.recv()
        return errors, seconds

    def close(self) -> int | None:
        """End the process. Returns its exit code if it had ended already."""
        self._line.close()
        self._process.join(0.1)
        code = self._process.exitcode
        if code is None:
            self._process.terminate()
        return code


def _process_main(line: Connection, pickled: bytes) -> None:
    # A terminal sends SIGINT to all processes; the consumer ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handler: Handler = pickle.loads(pickled)
    with suppress(EOFError, BrokenPipeError):
        while True:
            records = line.recv()
            began = time.thread_time()
            errors = [_try(handler, Record(*record)) for record in records]
            line.send((errors, time.thread_time() - began))


def _try(handler: Handler, record: Record) -> BaseException | None:
    try:
        handler(record)
    except Exception as error:
        return _portable(error)
    return None


def _portable(error: Exception) -> Exception:
    """The exception in a picklable form: with its stack as a note, and reduced to its text if its class cannot be
    pickled.
    """
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        portable = ConsumerError(f"{type(error).__qualname__}: {error}", reason="handler")
        portable.add_note(error.__notes__[-1])
        return portable
    return error
