"""Producer over the log: a dead letter goes to the partition number of its source."""

from __future__ import annotations

from functools import partial

from tsdb.log.interface import Appended, Log
from tsdb.model.errors import TsdbError
from tsdb.parallel_consumer import OutRecord, SendFailed
from tsdb.parallel_consumer.producer import OnSent


class LogProducer:
    """tsdb.parallel_consumer.Producer that appends to the log. Thread-safe."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def send(self, record: OutRecord, on_sent: OnSent) -> None:
        try:
            self._log.append(
                record.topic,
                record.partition,
                record.value,
                key=record.key,
                headers=record.headers,
                on_done=partial(_answer, on_sent),
            )
        except TsdbError as error:
            _answer(on_sent, error)


def _answer(on_sent: OnSent, answer: Appended | TsdbError) -> None:
    if isinstance(answer, Appended):
        on_sent(None)
        return
    reason = "record_too_large" if answer.reason == "record_too_large" else "unavailable"
    on_sent(SendFailed(answer.message, reason=reason))
