"""Sender: a bounded buffer of batches, and a thread that writes them in order, even through outages of the gateway."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass

from tsdb.cli.agent.outage import Outage
from tsdb.client import Client, Overloaded, TsdbError, Unavailable, WriteBatch, WriteResult
from tsdb.model.errors import worth_retrying
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread

BATCHES_MAX = 600  # Ten minutes at one batch a second, enough for an operator to end an outage.
SAMPLES_MAX = 2_000_000  # Samples in all batches: some 500 MB, ten pages of the largest size.
ATTEMPT_S = 5.0
LEAST_ATTEMPT_S = 0.1
RETRY_S = 0.5

log = get_logger(__name__)


@dataclass(slots=True)
class SendCounts:
    """Counts of samples by their outcome, and of write requests."""

    samples: int = 0
    refused: int = 0
    dropped: int = 0
    requests: int = 0
    failures: int = 0


class BatchSender:
    """`start`, then `put` from one thread; `close` stops intake and `join` drains.

    A full buffer drops its oldest batches. A batch that the gateway can never accept is dropped too; both are counted.
    Retryable failures are retried.
    """

    def __init__(
        self,
        client: Client,
        *,
        batches_max: int = BATCHES_MAX,
        samples_max: int = SAMPLES_MAX,
        attempt_s: float = ATTEMPT_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._client = client
        self._batches_max = batches_max
        self._samples_max = samples_max
        self._attempt_s = attempt_s
        self._retry_s = retry_s
        # Innermost: guards the buffer, `_closed` and `sent.dropped`. The thread owns the other counts until it ends.
        self._changed = threading.Condition()
        self._buffer: deque[WriteBatch] = deque()
        self._buffered = 0  # Samples in the buffer.
        self._full = Outage("buffer full", "buffer has capacity again")
        self._gateway = Outage("gateway away", "gateway is back")
        self._refusals = Outage("samples refused", "no samples refused any more")
        self._closed = False
        self._abandoned = threading.Event()
        self._end_at = math.inf  # End of the wait in `join`, on the monotonic clock.
        self._failure: BaseException | None = None
        self._thread = new_thread(self._run, "agent-sender")
        self.sent = SendCounts()

    def start(self) -> None:
        self._thread.start()

    def put(self, batch: WriteBatch) -> None:
        """Add a batch without waiting. Raises the exception that stopped the sender."""
        if self._failure is not None:
            raise self._failure
        with self._changed:
            self._buffer.append(batch)
            self._buffered += batch.samples
            while len(self._buffer) > self._batches_max or self._buffered > self._samples_max:
                self.sent.dropped += self._pop_locked().samples
                self._full.saw(
                    f"the oldest are dropped: its limits are {self._batches_max} batches, {self._samples_max} samples"
                )
            self._changed.notify()

    def close(self) -> None:
        """Stop intake; `join` drains the buffer."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait until the buffer is empty. Batches left after timeout_s are dropped and counted."""
        self._end_at = time.monotonic() + timeout_s
        self._thread.join(timeout_s)
        self._abandoned.set()
        self._thread.join(self._attempt_s + 1)
        with self._changed:
            self.sent.dropped += sum(batch.samples for batch in self._buffer)
            self._buffer.clear()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._write(batch)
        except BaseException as error:
            self._failure = error

    def _next(self) -> WriteBatch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._buffer or self._closed)
            if not self._buffer or self._abandoned.is_set():
                return None
            self._full.saw(None)
            return self._pop_locked()

    def _pop_locked(self) -> WriteBatch:
        oldest = self._buffer.popleft()
        self._buffered -= oldest.samples
        return oldest

    def _write(self, batch: WriteBatch) -> None:
        while not self._abandoned.is_set():
            self.sent.requests += 1
            try:
                self._count(self._client.write(batch, partial=True, timeout_s=self._attempt()))
                self._gateway.saw(None)
                return
            except TsdbError as error:
                self.sent.failures += 1
                # After a call that ran out of time the next one may succeed, so every Unavailable is retried.
                if not (isinstance(error, Unavailable) or worth_retrying(error)):
                    log.error("batch dropped", reason=error.reason, error=error.message, samples=batch.samples)
                    break
                self._gateway.saw(f"{error.message} ({error.reason}); trying again")
                self._abandoned.wait(_delay_s(error, self._retry_s))
        with self._changed:
            self.sent.dropped += batch.samples

    def _attempt(self) -> float:
        """Timeout of the next attempt, in seconds: a silent gateway must not delay a drain."""
        return min(self._attempt_s, max(LEAST_ATTEMPT_S, self._end_at - time.monotonic()))

    def _count(self, result: WriteResult) -> None:
        self.sent.samples += result.samples
        self.sent.refused += result.refused_samples
        self._refusals.saw(result.offenders[0].message if result.offenders else None)


def _delay_s(error: TsdbError, least_s: float) -> float:
    hint_s = error.retry_after_s if isinstance(error, Unavailable | Overloaded) else None
    return max(least_s, hint_s or 0.0)
