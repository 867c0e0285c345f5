"""Writers: the classes that Spark calls to write samples into the log, one for batches and one for streams.

At least once: a repeated task or batch writes the same samples again, which changes no answer. When one frame has
several values for one series and time, the later row of a task counts; rows of several tasks have no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_backfill.failures import quoted_errors
from spark_backfill.writing.frame_writer import NAN_HINT
from spark_backfill.writing.samples.options import SampleOptions
from spark_backfill.writing.samples.rows import (
    BAD_LABELS,
    NULL_LABELS,
    NULL_TIMESTAMP,
    NULL_VALUE,
    RowBuffer,
    whole_rows,
)
from spark_backfill.writing.samples.sender import SendResult, forget_sender, worker_sender
from tsdb.log.interface import METRICS
from tsdb.log.meta import require_meta
from tsdb.model.errors import InvalidRequest, WrongTopic
from tsdb.ops.logs import get_logger

_NULLS = {
    NULL_LABELS: "column labels has nulls",
    BAD_LABELS: "column labels has a label that is null or no UTF-8",
    NULL_TIMESTAMP: "column ts has nulls",
    NULL_VALUE: f"column value has nulls{NAN_HINT}",
}

log = get_logger(__name__)


@dataclass
class SamplesWritten(WriterCommitMessage):
    """Result of one task. refused: left-out rows by reason. example: the first such row."""

    topic_id: str
    samples: int
    records: int
    refused: dict[str, int] = field(default_factory=dict)
    example: str = ""


class SampleWriter(DataSourceArrowWriter):
    """Writer of a batch."""

    def __init__(self, options: SampleOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SamplesWritten:
        """Write the rows of a task. Raises as `write_task`."""
        return write_task(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the totals. All samples are in the log."""
        report(messages)


class StreamSampleWriter(DataSourceStreamArrowWriter):
    """Writer of the batches of a stream."""

    def __init__(self, options: SampleOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SamplesWritten:
        """Write the rows of a task. Raises as `write_task`."""
        return write_task(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report the totals of one batch. All its samples are in the log."""
        report(messages, batch=batchId)


def begin_sample_write(options: SampleOptions) -> SampleWriter:
    """Called once on the driver. Raises ConfigMismatch (meta), and as the log does, before a task begins."""
    with quoted_errors(), options.places.open_log() as opened:
        opened.partitions(METRICS)
        require_meta(opened)
    return SampleWriter(options)


def write_task(batches: Iterator[pa.RecordBatch], options: SampleOptions) -> SamplesWritten:
    """Write the rows of a task into the log, about 65,536 at a time; return when the log has all of them.

    Raises InvalidRequest (null_*, labels_*, too_old, too_far_ahead, *_series_limit) for the first refused row, unless
    refused rows are dropped. Raises Unavailable and Overloaded after 120 s without an answer of the log.
    """
    with quoted_errors():
        try:
            sender = worker_sender(options)
            sent, buffer = SendResult(), RowBuffer()
            for batch in batches:
                rows = whole_rows(batch)
                if rows.refused and not options.drop:
                    reason = next(iter(rows.refused))
                    raise InvalidRequest(f"{_NULLS[reason]}, or set the option on_refused=drop", reason=reason)
                sent.refused.update(rows.refused)
                buffer.add(rows.batch, rows.joined)
                if buffer.is_full:
                    sender.send(buffer.drain(), sent, drop=options.drop)
            sender.send(buffer.drain(), sent, drop=options.drop)
            return SamplesWritten(sender.topic_id, sent.samples, sent.records, dict(sent.refused), sent.example)
        except BaseException:
            forget_sender()
            raise


def report(messages: Sequence[WriterCommitMessage | None], *, batch: int | None = None) -> None:
    """Log the totals of all tasks. Raises WrongTopic (topic_recreated) when the tasks wrote to different topics."""
    wrote = [message for message in messages if isinstance(message, SamplesWritten)]
    topics = {message.topic_id for message in wrote}
    refused: Counter[str] = Counter()
    for message in wrote:
        refused.update(message.refused)
    with quoted_errors():
        if len(topics) > 1:
            raise WrongTopic(
                f"the log was made anew during the write: its tasks saw topic ids {', '.join(sorted(topics))}; write"
                " the frame again",
                reason="topic_recreated",
            )
    samples, records = sum(message.samples for message in wrote), sum(message.records for message in wrote)
    log.info("samples written", batch=batch, samples=samples, records=records, tasks=len(wrote))
    if refused:
        example = next((message.example for message in wrote if message.example), "")
        log.warning("samples refused", batch=batch, samples=refused.total(), **refused, example=example)
