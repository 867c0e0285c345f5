"""Appender: appends grouped samples to the log, record by record, until the log has all of them.

Records of one request and partition are appended in their order. When the broker finds a record too large, the record
is halved and all later records of the request in its partition are appended again: a later record must win over an
earlier one, and records that are in the log twice change no answer. The learned size stays for later requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from ingest.acks import Acks
from ingest.grouping import Grouped
from ingest.inflight import Reservation
from ingest.log_errors import as_seen_by_sender, clock_error, deadline_error
from ingest.records import EncodedRecord, RecordRange, encode_ranges, ranges_by_partition, split
from tsdb.chain import Chain
from tsdb.log.interface import METRICS, Appended, Log
from tsdb.model.errors import InvalidRequest, TsdbError
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.metrics import counter

# Lower bound of the learned size: below it one request with long packs would needlessly shrink all other records.
RECORD_BYTES_LEAST = 16 * 1024
TOO_LARGE = "record_too_large"

_records = counter("tsdb_ingest_records_total", "Log records that the log acknowledged.")
_record_bytes = counter("tsdb_ingest_record_bytes_total", "Bytes of log records that the log acknowledged.")
_halved = counter("tsdb_ingest_records_halved_total", "Log records that the broker found too large.")

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Round:
    """Records sent together, and the error that ended the sending."""

    acks: Acks
    records: list[EncodedRecord] = field(default_factory=list)
    error: TsdbError | None = None


class RecordAppender:
    """Thread-safe: any number of requests at once."""

    def __init__(self, log: Log, bytes_max: int, ahead_ms: int, chain: Chain) -> None:
        self._log = log
        self._chain = chain
        self._bytes_max = bytes_max  # Never raised, so a race without a lock costs at most one more halving.
        self._ahead_ms = ahead_ms

    def append(
        self, grouped: Grouped, deadline: Deadline, reservation: Reservation, name: Callable[[int], str]
    ) -> list[Appended]:
        """One Appended for each record, once all are acknowledged and no sample is so far ahead that readers ignore it.

        Raises Unavailable or Overloaded as the log raises them, Unavailable (deadline, clock), and InvalidRequest
        (record_too_large) when a single sample does not fit. `name(series_id)` gives the series for that message.
        """
        done: list[Appended] = []
        todo = split(grouped, ranges_by_partition(grouped), self._bytes_max)
        while todo:
            sent = self._send(grouped, todo, reservation)
            if sent.error is not None and not _too_large(sent.error):
                raise as_seen_by_sender(sent.error)
            if not sent.acks.wait(deadline.remaining()):
                raise deadline_error(f"{len(sent.records)} records are not acknowledged")
            todo = self._collect(grouped, sent, todo, done, name)
        return done

    def _send(self, grouped: Grouped, todo: list[RecordRange], reservation: Reservation) -> _Round:
        """Append in order until the log refuses one."""
        reservation.hold()
        sent = _Round(Acks(lambda _: reservation.release()))
        headers = self._chain.first()
        for record in encode_ranges(grouped, todo):
            answer = sent.acks.expect()
            sent.records.append(record)
            try:
                self._log.append(METRICS, record.part.partition, record.data, headers=headers, on_done=answer)
            except TsdbError as error:
                answer(error)
                sent.error = error
                break
        sent.acks.seal()
        return sent

    def _collect(
        self, grouped: Grouped, sent: _Round, todo: list[RecordRange], done: list[Appended], name: Callable[[int], str]
    ) -> list[RecordRange]:
        """Add acknowledged records to `done`. Returns the ranges still to append, in order."""
        again: list[RecordRange] = []
        halved: set[int] = set()  # Partitions with a record too large: their later records are appended again.
        stored_bytes, before = 0, len(done)
        for record, answer in zip(sent.records, sent.acks.answers, strict=True):
            partition = record.part.partition
            if isinstance(answer, TsdbError) and _too_large(answer):
                again.extend(self._halve(grouped, record, name))
                halved.add(partition)
            elif isinstance(answer, TsdbError):
                raise as_seen_by_sender(answer)
            elif partition in halved:
                again.append(record.part)
            else:
                assert isinstance(answer, Appended), "all answers are in"
                if record.newest_ms > answer.broker_ms + self._ahead_ms:
                    raise clock_error(answer, record.newest_ms, self._ahead_ms)
                done.append(answer)
                stored_bytes += len(record.data)
        _records.inc(len(done) - before)
        _record_bytes.inc(stored_bytes)
        return again + todo[len(sent.records) :]

    def _halve(self, grouped: Grouped, record: EncodedRecord, name: Callable[[int], str]) -> list[RecordRange]:
        part, size = record.part, len(record.data)
        if part.samples == 1:
            raise InvalidRequest(
                f"one sample is a record of {size} bytes, which the broker finds too large; "
                f"series {name(int(grouped.series_id[part.start]))}; other samples of the request may be stored",
                reason=TOO_LARGE,
                got=size,
            )
        _halved.inc()
        learned = max(size // 2, RECORD_BYTES_LEAST)
        if learned < self._bytes_max:
            logger.warning("broker accepts only smaller records", record_bytes=size, record_bytes_max=learned)
            self._bytes_max = learned
        return part.halves()


def _too_large(error: TsdbError) -> bool:
    return isinstance(error, InvalidRequest) and error.reason == TOO_LARGE
