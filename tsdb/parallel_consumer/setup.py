"""Setup: has the arguments of a core, with their defaults."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.control import Control
from tsdb.parallel_consumer.errors import InvalidConfig
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.offsets.commits import OnCommitted
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Order, by_key
from tsdb.parallel_consumer.policy import ErrorPolicy
from tsdb.parallel_consumer.producer import Producer
from tsdb.parallel_consumer.record import Position, Record, TopicPartition


def ignore_commits(positions: Mapping[TopicPartition, Position]) -> None: ...


def always(record: Record) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """order: which records follow one another. producer, dead_letter_topic: required unless the policy never sends.

    gate(record): whether a record in BARRIER may run, called once all records before it are finished.
    on_committed(positions): called after each acknowledged commit. Both run on the
    consumer's thread and must not block.
    control_file: TOML or JSON, replaces `control` at each change of the file.
    """

    metrics: ConsumerMetrics
    clock: Clock
    order: Order = by_key
    policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    options: Options = field(default_factory=Options)
    producer: Producer | None = None
    dead_letter_topic: str = ""
    gate: Callable[[Record], bool] = always
    on_committed: OnCommitted = ignore_commits
    randomness: random.Random = field(default_factory=random.Random)
    control: Control = field(default_factory=Control)
    control_file: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.policy.sends and (self.producer is None or not self.dead_letter_topic):
            raise InvalidConfig("the error policy may send dead letters: it needs a producer and a dead letter topic")
