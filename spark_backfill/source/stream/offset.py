"""Stream offset: the position of a stream of the log, in the checkpoint of a query. Pure.

Equal offsets give equal JSON text, because Spark compares the texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tsdb.model.errors import ConfigMismatch, CorruptData, UnknownVersion, WrongTopic

VERSION = 1
NEW_CHECKPOINT = "give the query a new checkpoint"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """next_offsets: the next record to read of each partition, by number. topic_id, log_prefix: identify the log.

    first_offsets: start of the first batch; only the offset at its end has it. Spark requests again the start of a
    first batch that failed, and the end of the log or a time lookup may have moved since.

    """

    topic_id: str = ""
    log_prefix: str = ""
    next_offsets: tuple[int, ...] = ()
    first_offsets: tuple[int, ...] = ()

    @property
    def is_initial(self) -> bool:
        """Whether no batch was planned yet."""
        return not self.next_offsets

    def as_json(self) -> dict[str, Any]:
        """JSON for Spark's checkpoint, from which `stream_offset_of` makes an equal value."""
        first = {"first_offsets": list(self.first_offsets)} if self.first_offsets else {}
        return {
            "version": VERSION,
            "topic_id": self.topic_id,
            "log_prefix": self.log_prefix,
            "next_offsets": list(self.next_offsets),
            **first,
        }

    def check(self, topic_id: str, log_prefix: str, partitions: int) -> None:
        """Raises WrongTopic (checkpoint_prefix, checkpoint_topic), ConfigMismatch (partitions): another log."""
        if self.log_prefix != log_prefix:
            raise WrongTopic(
                f"the checkpoint is of log_prefix {self.log_prefix!r}; the query has {log_prefix!r}: set the same, or"
                f" {NEW_CHECKPOINT}",
                reason="checkpoint_prefix",
            )
        if self.topic_id != topic_id:
            raise WrongTopic(
                f"the checkpoint is of log topic id {self.topic_id}; the log's is {topic_id}: it was made anew, or"
                f" it is another log; {NEW_CHECKPOINT}",
                reason="checkpoint_topic",
            )
        if len(self.next_offsets) != partitions:
            raise ConfigMismatch(
                f"the checkpoint has {len(self.next_offsets)} partitions; the log has {partitions}: {NEW_CHECKPOINT}",
                reason="partitions",
            )


def stream_offset_of(data: Mapping[str, Any]) -> StreamOffset:
    """Decode the offset from JSON of the checkpoint. Raises UnknownVersion and CorruptData, both with reason
    checkpoint."""
    if data.get("version") != VERSION:
        raise UnknownVersion(
            f"the checkpoint is of version {data.get('version')!r}; this process knows {VERSION}: {NEW_CHECKPOINT}",
            reason="checkpoint",
        )
    try:
        return StreamOffset(
            str(data["topic_id"]),
            str(data["log_prefix"]),
            _offsets(data["next_offsets"]),
            _offsets(data.get("first_offsets", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(
            f"the checkpoint has an invalid offset: {error!r}; {NEW_CHECKPOINT}", reason="checkpoint"
        ) from error


def advanced(starts: tuple[int, ...], highs: tuple[int, ...], records_max: int | None) -> tuple[int, ...]:
    """The offsets at the end of a batch that begins at `starts` and has about records_max records; None: up to `highs`.

    Each partition gets its share of the backlog, at least one record, so that all reach their end in the same batch.

    """
    backlog = [max(high - start, 0) for start, high in zip(starts, highs, strict=True)]
    total = sum(backlog)
    if records_max is None or total <= records_max:
        return tuple(start + waiting for start, waiting in zip(starts, backlog, strict=True))
    return tuple(
        start + min(waiting, max(records_max * waiting // total, 1))
        for start, waiting in zip(starts, backlog, strict=True)
    )


def _offsets(data: Any) -> tuple[int, ...]:
    found = tuple(int(number) for number in data)
    if any(number < 0 for number in found):
        raise ValueError("a negative offset")
    return found
