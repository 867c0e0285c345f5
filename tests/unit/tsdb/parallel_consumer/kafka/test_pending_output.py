"""Output of handlers, kept until a commit covers its record."""

from __future__ import annotations

import numpy as np

from tsdb.parallel_consumer import OutRecord, Position, Record
from tsdb.parallel_consumer.kafka.transactions import PendingOutput
from tsdb.parallel_consumer.offsets.metadata import CommitMetadata, encode_metadata

TOPIC_PARTITION = ("orders", 0)


def out(record: Record) -> list[OutRecord]:
    return [OutRecord("bills", record.partition, record.key, b"%d" % record.offset, ())]


def record(offset: int) -> Record:
    return Record("orders", 0, offset, b"k", b"")


def at(next_offset: int, *runs: tuple[int, int]) -> Position:
    finished = np.array(runs, np.int64).reshape(-1, 2)
    return Position(next_offset, encode_metadata(next_offset, CommitMetadata(finished), "id"))


def test_a_commit_takes_the_output_of_finished_records_in_offset_order() -> None:
    pending = PendingOutput()
    pending.open([TOPIC_PARTITION])
    handle = pending.producing(out)
    for offset in (7, 3, 12, 5, 9, 10):
        handle(record(offset))
    finished = pending.finished(TOPIC_PARTITION, at(5, (7, 8), (10, 12)), "id")
    assert list(finished) == [3, 7, 10]
    assert [produced.value for produced in finished[7]] == [b"7"]
    pending.forget({TOPIC_PARTITION: finished})
    assert list(pending.finished(TOPIC_PARTITION, at(20), "id")) == [5, 9, 12]


def test_the_last_attempt_of_a_record_counts() -> None:
    pending = PendingOutput()
    pending.open([TOPIC_PARTITION])
    pending.producing(lambda record: [*out(record), *out(record)])(record(1))
    pending.producing(out)(record(1))
    assert len(pending.finished(TOPIC_PARTITION, at(2), "id")[1]) == 1


def test_output_of_an_earlier_assignment_is_dropped_after_reassignment() -> None:
    """A kept output would be sent a second time, behind later output of its key."""
    pending = PendingOutput()
    pending.open([TOPIC_PARTITION])

    def slow(record: Record) -> list[OutRecord]:
        pending.close([TOPIC_PARTITION])
        pending.open([TOPIC_PARTITION])
        return out(record)

    pending.producing(slow)(record(4))
    assert pending.finished(TOPIC_PARTITION, at(9), "id") == {}


def test_output_for_unassigned_partitions_is_dropped() -> None:
    pending = PendingOutput()
    pending.producing(out)(record(1))
    assert pending.finished(TOPIC_PARTITION, at(9), "id") == {}
