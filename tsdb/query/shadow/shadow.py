"""Shadow: takes a share of the reads, sends them to another querier or store on its own threads, compares the answers.

A read passes through unchanged. Waiting reads are bounded in number and in bytes; above a bound they are dropped and
counted. A read that comes from another shadow is not sent on: two queriers may be shadows of each other.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc
from google.protobuf.message import Message

from tsdb.client import SelectResult
from tsdb.client.call import Method
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, TsdbError
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.logs import get_logger
from tsdb.ops.queue_threads import QueueThreads
from tsdb.promql.evaluate.query import EvaluationResult
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.query.promql.answer import messages as query_messages
from tsdb.query.shadow.capture import Capture, Captured
from tsdb.query.shadow.comparison import Differences, compare, rows_of
from tsdb.query.shadow.kept import KeptPairs, Other, Times
from tsdb.query.shadow.seen import Encoded
from tsdb.query.shadow.shadow_metrics import (
    differences_total,
    dropped_total,
    duration,
    failures_total,
    keep_failures_total,
    reads_total,
    reserved_bytes,
)
from tsdb.query.shadow.target import HEADER, ShadowTarget, decoded
from tsdb.v1 import reader_pb2

THREADS = 2
CHECK_EVERY_S = 60.0  # A shadow may be replaced by one of another log, or of other partitions.
WAITING_MAX = 64
NO_PROMQL = "no_promql"  # Code of a store's refusal.

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    """share: above 0 and at most 1. kept: stores differing reads; None: they are not stored."""

    share: float
    bytes_max: int
    kept: KeptPairs | None = None


class Shadow:
    """A component, and the hook `AnswerObserver` of the reads. draw: returns a random number in [0, 1)."""

    def __init__(
        self, target: ShadowTarget, options: ShadowOptions, clock: Clock, draw: Callable[[], float] = random.random
    ) -> None:
        self._target = target
        self._options = options
        self._clock = clock
        self._draw = draw
        self._budget = ByteBudget(options.bytes_max, gauge=reserved_bytes)
        self._lock = threading.Lock()  # Guards _waiting and _closing.
        self._waiting = 0
        self._closing = False
        # Whether the shadow has the same log, and when that was checked; None until it has answered.
        self._same_log = False
        self._checked_at: float | None = None
        self._threads: QueueThreads[Captured] = QueueThreads("shadow", THREADS, self._take)

    def start(self) -> None:
        self._threads.start()

    def close(self) -> None:
        """Stop intake, and drop the reads that wait."""
        with self._lock:
            self._closing = True

    def join(self, timeout_s: float) -> bool:
        """End the calls to the shadow, and the threads."""
        self._target.close()
        return self._threads.join(timeout_s)

    def abort(self) -> None:
        self._target.close()

    def answer(
        self, method: str, request: Message, context: grpc.ServicerContext, messages: Iterator[Encoded]
    ) -> Iterator[Encoded]:
        """The same messages; of a share of the reads they are also kept for a comparison."""
        if self._draw() >= self._options.share or any(key == HEADER for key, _ in context.invocation_metadata()):
            return messages
        return self._captured(Method(method), request, messages)

    def result(self, request: Callable[[], reader_pb2.QueryRequest], result: EvaluationResult, seconds: float) -> None:
        """Implements AnswerObserver.result. The request is built only for a read of the share."""
        if self._draw() >= self._options.share:
            return
        if result.has_histograms:
            dropped_total.labels("native_histograms").inc()
            return
        size = result.value.nbytes if isinstance(result.value, Block | Samples) else 0
        if not self._budget.take(size):
            dropped_total.labels("bytes").inc()
            return
        now_ms = self._clock.now_ms()
        self._put(
            Captured(
                Method.QUERY, request(), lambda: query_messages(result, with_histograms=False), now_ms, seconds, size
            )
        )

    def _captured(self, method: Method, request: Message, messages: Iterator[Encoded]) -> Iterator[Encoded]:
        capture, seconds = Capture(self._budget), 0.0
        handed_on = False
        try:
            began = time.perf_counter()
            for message in messages:
                # The time in which the caller takes the message does not count.
                seconds += time.perf_counter() - began
                capture.add(message)
                yield message
                began = time.perf_counter()
            if capture.lost:
                dropped_total.labels("bytes").inc()
                return
            kept = capture.messages
            self._put(Captured(method, request, lambda: kept, self._clock.now_ms(), seconds, capture.size))
            handed_on = True
        finally:
            if not handed_on:
                capture.drop()

    def _put(self, captured: Captured) -> None:
        with self._lock:
            reason = "closing" if self._closing else "queue_full" if self._waiting >= WAITING_MAX else ""
            if not reason:
                self._waiting += 1
        if reason:
            self._drop(captured, reason)
        else:
            self._threads.put(captured)

    def _drop(self, captured: Captured, reason: str) -> None:
        self._budget.give_back(captured.size)
        dropped_total.labels(reason).inc()

    def _take(self, captured: Captured) -> None:
        """Ask and compare. The read's bytes are given back and the thread goes on, also after an error."""
        with self._lock:
            closing = self._closing
        if closing:
            self._drop(captured, "closing")
            return
        try:
            self._check_log()
            if self._same_log:
                self._ask(captured)
            else:
                dropped_total.labels("wrong_log").inc()
        except ConfigMismatch as error:
            self._same_log = False
            dropped_total.labels("wrong_log").inc()
            log.error("shadow not used", reason=error.reason, error=error.message)
        except TsdbError as error:
            if error.reason == NO_PROMQL:
                dropped_total.labels(NO_PROMQL).inc()
            else:
                failures_total.labels(error.reason).inc()
        except Exception as error:
            # A faulty shadow may answer with anything.
            failures_total.labels("internal").inc()
            log.warning("shadow read failed", error=str(error), exc_info=True)
        finally:
            self._budget.give_back(captured.size)
            with self._lock:
                self._waiting -= 1

    def _check_log(self) -> None:
        """Check the log when that is due. A shadow that does not answer is checked again at the next read. Raises as
        ShadowTarget.check_log."""
        now = self._clock.monotonic()
        if self._checked_at is not None and now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = None
        try:
            self._target.check_log()
        except ConfigMismatch:
            self._same_log, self._checked_at = False, now
            raise
        self._same_log, self._checked_at = True, now

    def _ask(self, captured: Captured) -> None:
        request = self._target.part_of(captured.method, captured.request)
        if request is None:
            dropped_total.labels("other_partitions").inc()
            return
        began = time.perf_counter()
        theirs = self._target.read(captured.method, request)
        times = Times(captured.seconds, time.perf_counter() - began)
        duration.labels("own").observe(times.own)
        duration.labels("shadow").observe(times.shadow)
        held: set[int] | None = None
        if isinstance(theirs, SelectResult):
            # These include the partitions that it should have answered for, so that an answer without one of them
            # differs.
            expected = set(request.options.partitions) or self._target.partitions
            held = {*expected, *(state.partition for state in theirs.partitions)}
        ours = decoded(captured.method, captured.request, captured.messages(), held)
        if any(one.details is not None and one.details.histograms is not None for one in (ours, theirs)):
            dropped_total.labels("native_histograms").inc()  # The comparison knows numbers alone.
            return
        found = compare(rows_of(ours), rows_of(theirs), captured.at_ms)
        reads_total.labels(found.result).inc()
        for kind, count in found.counts.items():
            differences_total.labels(kind).inc(count)
        if found.counts:
            log.warning("shadow differs", method=captured.method.value, **found.counts)
            self._keep(captured, found, times)

    def _keep(self, captured: Captured, found: Differences, times: Times) -> None:
        if self._options.kept is None:
            return
        try:
            self._options.kept.keep(captured, found, times, Other(self._target.address, self._target.experiment))
        except OSError as error:
            keep_failures_total.inc()
            log.warning("differing read not kept", error=str(error))
