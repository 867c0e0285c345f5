"""What handlers produced, as it is kept until a commit tells of it."""

from __future__ import annotations

import numpy as np

from tsdb.parallel_consumer import OutRecord, Position, Record
from tsdb.parallel_consumer.kept import Kept
from tsdb.parallel_consumer.metadata import Progress, encode_metadata

PLACE = ("orders", 0)


def out(record: Record) -> list[OutRecord]:
    return [OutRecord("bills", record.partition, record.key, b"%d" % record.offset, ())]


def record(offset: int) -> Record:
    return Record("orders", 0, offset, b"k", b"")


def at(next_offset: int, *runs: tuple[int, int]) -> Position:
    finished = np.array(runs, np.int64).reshape(-1, 2)
    return Position(next_offset, encode_metadata(next_offset, Progress(finished), "id"))


def test_a_commit_takes_what_it_says_is_finished_in_the_order_of_offsets() -> None:
    kept = Kept()
    kept.open([PLACE])
    handle = kept.producing(out)
    for offset in (7, 3, 12, 5, 9, 10):
        handle(record(offset))
    finished = kept.finished(PLACE, at(5, (7, 8), (10, 12)), "id")
    assert list(finished) == [3, 7, 10]
    assert [produced.value for produced in finished[7]] == [b"7"]
    kept.forget({PLACE: finished})
    assert list(kept.finished(PLACE, at(20), "id")) == [5, 9, 12]


def test_of_a_record_that_is_tried_again_the_last_try_counts() -> None:
    kept = Kept()
    kept.open([PLACE])
    kept.producing(lambda record: [*out(record), *out(record)])(record(1))
    kept.producing(out)(record(1))
    assert len(kept.finished(PLACE, at(2), "id")[1]) == 1


def test_a_handler_that_outlives_its_assignment_keeps_nothing_though_the_partition_came_back() -> None:
    """Else its output would go out a second time, behind later ones of its key."""
    kept = Kept()
    kept.open([PLACE])

    def slow(record: Record) -> list[OutRecord]:
        kept.close([PLACE])
        kept.open([PLACE])
        return out(record)

    kept.producing(slow)(record(4))
    assert kept.finished(PLACE, at(9), "id") == {}


def test_nothing_is_kept_for_partitions_that_are_not_ours() -> None:
    kept = Kept()
    kept.producing(out)(record(1))
    assert kept.finished(PLACE, at(9), "id") == {}
