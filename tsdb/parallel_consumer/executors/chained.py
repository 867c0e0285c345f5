"""Chained: a handler that takes part in message chains (tsdb.chain). It receives the stage of its record as well.

def handle(record: Record, stage: Stage) -> None:
    producer.produce("bills", bill(record), headers=stage.produce())

ThreadExecutor(chained(Chain("shop", "billing"), handle), 16)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tsdb.chain import LOOP_PROTECTION, Chain, Stage
from tsdb.parallel_consumer.errors import DeadLettered
from tsdb.parallel_consumer.record import Record

Answer = TypeVar("Answer")


def chained(chain: Chain, handler: Callable[[Record, Stage], Answer]) -> Callable[[Record], Answer]:
    """Wrap a handler of (record, stage) as a handler of a record. A record with no hops left becomes a dead letter
    before the handler runs, reason loop_protection.
    """

    def handle(record: Record) -> Answer:
        stage = chain.begin(chain.read(record.headers, record.timestamp_ms if record.timestamp_ms > 0 else None))
        if stage.expired:
            raise DeadLettered("the message has no hops left", reason=LOOP_PROTECTION)
        return handler(record, stage)

    return handle
