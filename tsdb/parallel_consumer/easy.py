"""consume: a parallel consumer of Kafka topics in one line, as most want it: by key, dead letters beside the topic."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from tsdb.parallel_consumer.consumer import ParallelConsumer
from tsdb.parallel_consumer.executors import Executor, OnLoop, OnThreads
from tsdb.parallel_consumer.kafka import EARLIEST, KafkaOutlet, KafkaSource, Start
from tsdb.parallel_consumer.kafka.settings import connection_settings
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.signals import wait_for_the_end


class Consuming:
    """A consumer with its source and outlet; a context manager that drains. `run` stays until a signal or a failure."""

    def __init__(
        self,
        config: Mapping[str, object],
        topics: Sequence[str],
        handler: Any,
        *,
        concurrency: int = 16,
        dead_letter_topic: str = "",
        options: Options | None = None,
        start: Start = EARLIEST,
        **more: Any,
    ) -> None:
        options = options or Options(concurrency=concurrency)
        source = KafkaSource(config, topics, start=start)
        self._resources = ExitStack()
        outlet = self._resources.enter_context(KafkaOutlet(connection_settings(config)))
        self.consumer = ParallelConsumer(
            source,
            executor_of(handler, options.concurrency),
            options=options,
            outlet=outlet,
            dead_letter_topic=dead_letter_topic or f"{topics[0]}.dlq",
            **more,
        )

    def run(self) -> None:
        """Consume until SIGTERM or SIGINT, then drain. Raises what ended the consumer. On the main thread."""
        with self:
            wait_for_the_end(lambda: self.consumer.failure() is not None)

    def __enter__(self) -> Self:
        self._resources.enter_context(self.consumer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()


def consume(config: Mapping[str, object], topics: Sequence[str], handler: Any, **more: Any) -> Consuming:
    """handler: an executor, a function of a record (and its Context), or an async one. config: of the client library,
    at least bootstrap.servers and group.id. more: concurrency, dead_letter_topic ("<first topic>.dlq"), start (as of
    KafkaSource), and what ParallelConsumer takes.
    """
    return Consuming(config, topics, handler, **more)


def executor_of(handler: Any, concurrency: int) -> Executor:
    """How a handler is run: as it says itself, on a loop when it is async, else on threads."""
    if hasattr(handler, "submit"):
        executor: Executor = handler
        return executor
    call = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    return OnLoop(handler) if inspect.iscoroutinefunction(call) else OnThreads(handler, concurrency)
