"""Feeder: appends numbered series and a test's records to a log, at broker times that the test chooses.

The topics must be CreateTime ones. All writes also go to a twin, which knows the right answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from support.data.heads import Record, Sample, announcement, id_of
from support.data.heads import encoded as encoded_record
from support.fakes.replay_log import encoded
from support.oracles.head_twin import HeadTwin
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.model.time_set import PRODUCTION, TimeSet
from tsdb.model.window import index_epoch


class Feeder:
    """Appends records to one log. `twins`: for each partition a model of the samples that readers must return."""

    def __init__(self, log: Log, time_set: TimeSet = PRODUCTION) -> None:
        self.log = log
        self.twins = {partition: HeadTwin(time_set.ahead_ms) for partition in range(log.partitions(METRICS))}

    def announce(self, numbers: Iterable[int], partition: int, ts_ms: int) -> None:
        """Make series known for the index epoch of a sample time; announced now."""
        for number in numbers:
            key, value = announcement(number, index_epoch(id_of(number), ts_ms))
            self.log.append_sync(SERIES, partition, value, key=key)

    def samples(self, partition: int, samples: Sequence[Sample], broker_ms: int) -> int:
        """Append one record of samples (series number, ts_ms, value). Returns its offset."""
        offset = self.value(partition, encoded(*samples), broker_ms)
        self.twins[partition].apply([Record(offset, broker_ms, tuple(samples))])
        return offset

    def records(self, partition: int, records: Sequence[Record]) -> None:
        """Append records, which may have details."""
        for record in records:
            self.value(partition, encoded_record(record), record.broker_ms)
        self.twins[partition].apply(records)

    def many(self, partition: int, records: Sequence[tuple[int, Sequence[Sample]]]) -> None:
        """Records of (broker_ms, samples) in order, without waiting for each."""
        answers: list[object] = []
        for broker_ms, samples in records:
            self.log.append(METRICS, partition, encoded(*samples), timestamp_ms=broker_ms, on_done=answers.append)
        self.log.flush(30.0)
        for (broker_ms, samples), answer in zip(records, answers, strict=True):
            offset = getattr(answer, "offset", None)
            assert offset is not None, answer
            self.twins[partition].apply([Record(offset, broker_ms, tuple(samples))])

    def tick(self, partition: int, broker_ms: int, *, import_tick: bool = False) -> int:
        """Append a record without samples. Returns its offset."""
        return self.value(partition, encode_tick(import_tick), broker_ms)

    def value(self, partition: int, value: bytes, broker_ms: int) -> int:
        """Append any bytes. Returns their offset."""
        return self.log.append_sync(METRICS, partition, value, timestamp_ms=broker_ms).offset
