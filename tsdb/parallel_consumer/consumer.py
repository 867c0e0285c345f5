"""ParallelConsumer: runs the core on one thread, from start to drain.

    consumer = ParallelConsumer(source, ThreadExecutor(handle, 16), producer=producer, dead_letter_topic="orders.dlq")
    with consumer:
        ...

`close` stops the intake, `join` waits until running records have ended and are committed, `abort` drops them.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from prometheus_client import REGISTRY

from tsdb.parallel_consumer.clock import Clock, SystemClock
from tsdb.parallel_consumer.control import Control
from tsdb.parallel_consumer.core import Core
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.offsets.commits import OnCommitted
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Order, by_key
from tsdb.parallel_consumer.policy import ErrorPolicy
from tsdb.parallel_consumer.producer import Producer
from tsdb.parallel_consumer.record import Record, TopicPartition
from tsdb.parallel_consumer.scheduling.completion import ThreadMailbox
from tsdb.parallel_consumer.scheduling.executor import Executor, SupportsFailure
from tsdb.parallel_consumer.setup import Setup, always, ignore_commits
from tsdb.parallel_consumer.source import PolledSource, Source, WakeableSource
from tsdb.parallel_consumer.status import Status

log = logging.getLogger("tsdb.parallel_consumer")

STEP_S = 0.1  # Bounds how long an idle consumer takes to see a close, where its source cannot be woken.
IDLE_STEP_S = 2.0  # Step time of an idle consumer that can be woken.


class ParallelConsumer:
    """Owns one thread; only that thread calls the source. A context manager; leaving it drains.

    `executor`: how the handler runs, for example ThreadExecutor or AsyncioExecutor. `order`: which records follow one
    another. `producer`, `dead_letter_topic`: producer and topic of dead letters; optional only when the policy never
    sends. `control`, `control_file`: settings that may change at run time, and a file (TOML or JSON) that changes them.
    """

    def __init__(
        self,
        source: Source,
        executor: Executor,
        *,
        order: Order = by_key,
        policy: ErrorPolicy | None = None,
        options: Options | None = None,
        producer: Producer | None = None,
        dead_letter_topic: str = "",
        gate: Callable[[Record], bool] = always,
        on_committed: OnCommitted = ignore_commits,
        metrics: ConsumerMetrics | None = None,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        control: Control | None = None,
        control_file: str | os.PathLike[str] | None = None,
        name: str = "parallel-consumer",
    ) -> None:
        self._source = source
        self._executor = executor
        self._options = options or Options()
        self._mailbox = ThreadMailbox()
        self._clock = clock or SystemClock()
        setup = Setup(
            metrics=metrics or ConsumerMetrics(REGISTRY),
            clock=self._clock,
            order=order,
            policy=policy or ErrorPolicy(),
            options=self._options,
            producer=producer,
            dead_letter_topic=dead_letter_topic,
            gate=gate,
            on_committed=on_committed,
            randomness=randomness or random.Random(),
            control=control or Control(),
            control_file=control_file,
        )
        if isinstance(source, PolledSource):
            source.check_drains({name: getattr(self._options, name) for name in ("drain_s", "rebalance_drain_s")})
        self._wakeable = source if isinstance(source, WakeableSource) else None
        self._idle_step_s = STEP_S if self._wakeable is None else IDLE_STEP_S
        parts: list[object] = [executor, producer]
        self._threaded = [part for part in parts if isinstance(part, SupportsFailure)]
        self._core = Core(source, executor, self._mailbox, setup)
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._beat_at: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def status(self) -> Status:
        """The latest snapshot: at most a quarter of a second old while records run, else two seconds."""
        return self._core.status

    @property
    def control(self) -> Control:
        """Rates, quotas and pauses in effect. A new value takes effect at the next step. Any thread may call it."""
        return self._core.control

    @control.setter
    def control(self, control: Control) -> None:
        self._core.control = control
        self._wake()

    def pause(self) -> None:
        """Begin no more records. Running records continue to their end."""
        self.control = replace(self.control, paused=True)

    def resume(self) -> None:
        """Begin records again after `pause`."""
        self.control = replace(self.control, paused=False)

    def start(self) -> None:
        """Begin to consume; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop the intake. Returns at once; running records go on to their end, at most for drain_s."""
        self._closing.set()
        self._mailbox.wake()
        self._wake()

    def join(self, timeout_s: float) -> bool:
        """Call it after close: waits until all records are drained and committed and the partitions are given up; False
        on timeout.

        Raises the error that ended the consumer, unless `close` did.

        """
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def abort(self) -> None:
        """Drop running records: the next owner of the partition handles them again. Finished records are committed."""
        self.close()
        self._core.abort()
        if self._thread.ident is not None:
            self._thread.join(self._options.commit_interval_s + STEP_S)

    def failure(self) -> BaseException | None:
        """The error that ended the consumer; None while it works."""
        return self._error

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset below which all records of a partition are finished. Call it only within `gate`, `order` and
        `on_committed`."""
        return self._core.position(topic_partition)

    def silent_s(self) -> float:
        """Seconds since the last step began; 0 before the first step and after the end."""
        beat_at = self._beat_at
        return 0.0 if beat_at is None else self._clock.monotonic() - beat_at

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if not self.join(self._options.drain_s + self._options.rebalance_drain_s):
            self.abort()

    def _run(self) -> None:
        try:
            self._executor.start()
            self._source.start(self._core)
            try:
                self._loop()
            finally:
                self._source.close()
        except BaseException as error:
            self._error = self._error or error
        finally:
            self._beat_at = None
            self._executor.close()
            self._core.clear_gauges()
            if self._error is not None:
                log.error("ended by %s: %s", type(self._error).__name__, self._error)

    def _loop(self) -> None:
        while not self._closing.is_set() and self._failure() is None:
            self._beat_at = self._clock.monotonic()
            self._core.step(self._idle_step_s if self._core.is_idle else STEP_S)
        # Set before the drain, so that `failure` reports it without waiting for the drain.
        self._error = self._failure()
        self._core.drain()

    def _wake(self) -> None:
        if self._wakeable is not None:
            self._wakeable.wake()

    def _failure(self) -> BaseException | None:
        """The error of the core, or of a thread of the executor or the producer."""
        return self._core.failure or next(filter(None, (part.failure() for part in self._threaded)), None)
