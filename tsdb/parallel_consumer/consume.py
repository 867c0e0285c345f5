"""consume: a parallel consumer of Kafka topics in one line, with the usual defaults: ordered by key, dead letters in
"<topic>.dlq".
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import FrameType, TracebackType
from typing import Any, Self

from tsdb.parallel_consumer.consumer import ParallelConsumer
from tsdb.parallel_consumer.errors import InvalidConfig
from tsdb.parallel_consumer.executors.context import is_async
from tsdb.parallel_consumer.executors.record_executors import AsyncioExecutor, ThreadExecutor
from tsdb.parallel_consumer.kafka import EARLIEST, KafkaProducer, KafkaSource, Start
from tsdb.parallel_consumer.kafka.settings import connection_settings
from tsdb.parallel_consumer.kafka.source import PATTERN
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.scheduling.executor import Executor

CHECK_EVERY_S = 0.2  # Time between two checks for a failure while waiting for a signal.


class ConsumerService:
    """A consumer with its source and producer; a context manager that drains at its end. `run` ends at a signal or a
    failure."""

    def __init__(
        self,
        config: Mapping[str, object],
        topics: Sequence[str],
        handler: Any,
        *,
        concurrency: int = 16,
        dead_letter_topic: str = "",
        create_dead_letter_topic: bool = False,
        options: Options | None = None,
        start: Start = EARLIEST,
        **more: Any,
    ) -> None:
        options = options or Options(concurrency=concurrency)
        source = KafkaSource(config, topics, start=start)
        dead_letter_topic = dead_letter_topic or _beside(topics)
        _check_distinct(topics, dead_letter_topic)
        self._resources = ExitStack()
        producer = self._resources.enter_context(
            KafkaProducer(connection_settings(config), create_topics=create_dead_letter_topic)
        )
        self.consumer = ParallelConsumer(
            source,
            executor_of(handler, options.concurrency),
            options=options,
            producer=producer,
            dead_letter_topic=dead_letter_topic,
            **more,
        )

    def run(self) -> None:
        """Consume until SIGTERM or SIGINT, then drain. Raises the error that ended the consumer. Main thread only."""
        with self:
            _wait_for_the_end(lambda: self.consumer.failure() is not None)

    def __enter__(self) -> Self:
        self._resources.enter_context(self.consumer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()


def consume(config: Mapping[str, object], topics: Sequence[str], handler: Any, **more: Any) -> ConsumerService:
    """Build a consumer service. handler: an executor, a function of a record (and its Context), or an async one.
    config: settings of the client library, at least bootstrap.servers and group.id. more: concurrency,
    dead_letter_topic ("<first topic>.dlq"; required with a pattern), create_dead_letter_topic (False: the topic must
    exist), start (as of KafkaSource), and the arguments of ParallelConsumer."""
    return ConsumerService(config, topics, handler, **more)


def _beside(topics: Sequence[str]) -> str:
    if topics[0].startswith(PATTERN):
        raise InvalidConfig(
            f"dead_letter_topic is missing: a pattern ({topics[0]}) has no topic beside it", reason="setting"
        )
    return f"{topics[0]}.dlq"


def _check_distinct(topics: Sequence[str], dead_letter_topic: str) -> None:
    """Refuse a dead letter topic that is consumed too: its records would become dead letters again and again."""
    for topic in topics:
        own = re.search(topic, dead_letter_topic) if topic.startswith(PATTERN) else topic == dead_letter_topic
        if own:
            text = f"dead_letter_topic {dead_letter_topic} is among the topics that are read ({topic})"
            raise InvalidConfig(f"{text}: give it another name", reason="setting")


def executor_of(handler: Any, concurrency: int) -> Executor:
    """The executor of a handler: itself if it is one, an event loop if it is async, else threads."""
    if isinstance(handler, Executor):
        return handler
    return AsyncioExecutor(handler) if is_async(handler) else ThreadExecutor(handler, concurrency)


def _wait_for_the_end(failed: Callable[[], bool]) -> None:
    """Return at SIGTERM or SIGINT, or once failed() is true. Main thread only; restores the previous signal
    handlers."""
    # The lock stays taken until the first signal. An Event would block for ever: its `set` in a handler that interrupts
    # its `wait`. So would a SimpleQueue: its `get` when the timeout passes before it begins to wait.
    none_yet = threading.Lock()
    none_yet.acquire()

    def on_signal(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):  # This is not the first signal.
            none_yet.release()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not failed():
            if none_yet.acquire(timeout=CHECK_EVERY_S):
                return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
