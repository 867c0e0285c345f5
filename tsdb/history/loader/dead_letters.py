"""Dead letters: reads them from the topic of a parallel consumer, the loader's by default, and sends them back to their
source.

A chunk that is put back is followed by the removal of its hole, in the same lane: the hole goes only after the chunk is
loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tsdb.codec.chunk.key import ChunkKey, ProgressKey, RecordKey, decode_key, encode_key
from tsdb.history.loader.loss import loss_of
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, Headers, Log, LogRecord
from tsdb.log.records import read_batches
from tsdb.model.errors import CorruptData, InvalidRequest
from tsdb.model.time_set import TimeSet
from tsdb.parallel_consumer import Record
from tsdb.parallel_consumer.scheduling.dead_letters import PREFIX


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead letter topic. story: the dead letter headers without their prefix, as text. headers: all
    other headers."""

    partition: int
    offset: int
    broker_ms: int
    key: bytes | None
    value: bytes | None
    story: dict[str, str]
    headers: Headers

    @property
    def summary(self) -> str:
        """The key of the record in words: one line for an operator."""
        if self.story.get("topic") != CHUNKS:
            return self.story.get("topic", "unknown")
        try:
            return _described(decode_key(self.key or b""))
        except CorruptData:
            return "unreadable key"

    def origin(self) -> Record:
        """The record as it was consumed. Raises InvalidRequest (not_a_dead_letter, value_omitted)."""
        place = f"dead letter at partition {self.partition}, offset {self.offset}"
        if "value-omitted-bytes" in self.story:
            raise InvalidRequest(f"{place} was too large to keep its value", reason="value_omitted")
        try:
            number, offset, timestamp_ms = (int(self.story[name]) for name in ("partition", "offset", "timestamp-ms"))
            key = None if "null-key" in self.story else self.key
            return Record(self.story["topic"], number, offset, key, self.value, timestamp_ms, self.headers)
        except (KeyError, ValueError) as error:
            message = f"{place} does not say where it came from: {error}"
            raise InvalidRequest(message, reason="not_a_dead_letter") from error


def read_dead_letters(log: Log, partitions: Sequence[int], topic: str = CHUNKS_DLQ) -> Iterator[DeadLetter]:
    """All records of a dead letter topic, partition by partition, in order."""
    for partition in partitions:
        for batch in read_batches(log, topic, partition):
            for index in range(len(batch.offsets)):
                yield _letter(partition, batch.record(index))


def put_letter_back(log: Log, letter: DeadLetter, time_set: TimeSet) -> None:
    """Append the record to its source partition; durable on return. Raises InvalidRequest, as `origin`."""
    record = letter.origin()
    log.append_sync(record.topic, record.partition, record.value, key=record.key, headers=record.headers)
    loss = loss_of(record, time_set) if record.topic == CHUNKS else None
    if loss is not None and loss.pack_id:
        log.append_sync(CHUNKS, record.partition, None, key=encode_key(loss.key(record.offset)))


def _letter(partition: int, record: LogRecord) -> DeadLetter:
    story = {name.removeprefix(PREFIX): _text(value) for name, value in record.headers if name.startswith(PREFIX)}
    headers = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    return DeadLetter(partition, record.offset, record.broker_ms, record.key, record.value, story, headers)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _described(key: RecordKey) -> str:
    if isinstance(key, ChunkKey):
        return f"{key.kind.name.lower()} chunk of pack {key.pack_id:016x}"
    return "progress marker" if isinstance(key, ProgressKey) else type(key).__name__.removesuffix("Key").lower()
