"""A ruler's view of a log, on the embedded log and on a real broker alike: the records that it follows, its shares."""

from __future__ import annotations

import numpy as np
import pytest

from support.servers.logs import LogFactory, wait_until
from tsdb.codec.records.log_record import encode_record, encode_tick
from tsdb.log.interface import METRICS, Log
from tsdb.rules.follower import FollowedSamples, LogFollower
from tsdb.rules.shares import GroupShares

PARTITIONS = 4
OLD_MS, NEW_MS = 1_000, 5_000


@pytest.fixture
def log(log_factory: LogFactory) -> Log:
    log_factory.create(partitions=PARTITIONS)
    return log_factory.open()


def append(log: Log, partition: int, *times_ms: int) -> int:
    """A record of series 7 and 8, and so on. Returns its offset."""
    ids = np.arange(7, 7 + len(times_ms), dtype=np.uint64)
    length = np.array([len(ids)], np.uint32)
    times = np.array(times_ms, np.int64)
    value = encode_record(np.array([1], np.uint64), length, ids, times, np.zeros(len(ids)))
    return log.append_sync(METRICS, partition, value).offset


def followed(follower: LogFollower, ends: dict[int, int]) -> list[FollowedSamples]:
    found: list[FollowedSamples] = []

    def at_ends() -> bool:
        found.extend(follower.follow(OLD_MS))
        return dict(follower.next_offsets()) == ends

    wait_until(at_ends)
    return found


def test_only_samples_up_to_a_time_are_passed_on_and_the_rest_is_known_to_be_read(log: Log) -> None:
    append(log, 0, OLD_MS)
    follower = LogFollower(log, range(PARTITIONS))
    assert list(follower.follow(OLD_MS)) == []
    offset = append(log, 1, NEW_MS, OLD_MS, NEW_MS)
    ends = {0: 1, 1: offset + 1, 2: 0, 3: 0}
    (one,) = followed(follower, ends)
    assert (one.partition, one.series_ids.tolist(), one.ts_ms.tolist()) == (1, [8], [OLD_MS])
    assert one.offsets.tolist() == [offset]
    assert follower.position(0).watermark_ms is None
    assert follower.settled_ms() is None
    for number in (0, 2, 3):
        log.append_sync(METRICS, number, encode_tick())
    assert followed(follower, {0: 2, 1: offset + 1, 2: 1, 3: 1}) == []
    assert (follower.settled_ms() or 0) > NEW_MS
    follower.close()


def test_a_follower_that_goes_back_passes_the_records_on_again_and_is_not_complete_before(log: Log) -> None:
    follower = LogFollower(log, range(PARTITIONS))
    assert list(follower.follow(OLD_MS)) == []
    for number in range(PARTITIONS):
        append(log, number, OLD_MS)
    ends = dict.fromkeys(range(PARTITIONS), 1)
    assert len(followed(follower, ends)) == PARTITIONS
    settled_ms = follower.settled_ms()
    assert settled_ms is not None
    append(log, 2, OLD_MS)
    ends[2] = 2
    assert len(followed(follower, ends)) == 1
    follower.rewind(settled_ms)
    assert follower.position(2).watermark_ms is None
    again = followed(follower, ends)
    assert [one.offsets.tolist() for one in again if one.partition == 2] in ([[0, 1]], [[0], [1]], [[1]])
    assert (follower.position(2).watermark_ms or 0) >= settled_ms
    follower.close()


def test_each_group_of_rules_has_one_ruler_and_a_ruler_that_leaves_gives_its_groups_back(log: Log) -> None:
    groups = [f"rules.yaml;group-{number}" for number in range(40)]
    first, second = GroupShares(log), GroupShares(log)

    def shared(*shares: GroupShares) -> bool:
        for one in shares:
            one.look()
        owners = [[one.owns(group) for one in shares] for group in groups]
        return all(map(any, zip(*owners, strict=True))) and all(sum(of_group) == 1 for of_group in owners)

    wait_until(lambda: shared(first))
    wait_until(lambda: shared(first, second))
    append(log, 0, NEW_MS)  # Members read nothing.
    assert shared(first, second)
    second.close()
    wait_until(lambda: shared(first))
    first.close()
