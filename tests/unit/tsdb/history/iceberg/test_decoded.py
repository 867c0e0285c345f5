"""The cache of decoded row groups is bounded in bytes, drops the least recently used, and takes no large reads."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from tsdb.history.iceberg.decoded import DecodedGroups, GroupKey

GROUP_BYTES = 800
BOUND = 10 * GROUP_BYTES


def key(number: int) -> GroupKey:
    return "file", number, ("value",)


def group(number: int) -> pa.Table:
    return pa.table({"value": np.full(GROUP_BYTES // 8, float(number))})


def read(cache: DecodedGroups, *numbers: int) -> None:
    """One read that decodes what the cache has not."""
    one = cache.read()
    for number in numbers:
        if one.fits(GROUP_BYTES) and cache.get(key(number)) is None:
            one.groups[key(number)] = group(number)
    cache.keep(one)


def present(cache: DecodedGroups, count: int) -> list[int]:
    return [number for number in range(count) if key(number) in cache._groups]


def test_the_row_groups_used_least_recently_are_dropped() -> None:
    cache = DecodedGroups(BOUND)
    for number in range(10):
        read(cache, number)
    assert present(cache, 20) == list(range(10))
    assert cache.get(key(0)) is not None
    for number in range(10, 15):
        read(cache, number)
    assert present(cache, 20) == [0, *range(6, 15)]


def test_a_read_of_more_than_a_quarter_leaves_the_cache_as_it_was() -> None:
    cache = DecodedGroups(BOUND)
    for number in range(10):
        read(cache, number)
    read(cache, 10, 11, 12)
    assert present(cache, 20) == list(range(10))
    read(cache, 10, 11)
    assert present(cache, 20) == list(range(2, 12))


def test_a_cache_of_no_bytes_keeps_nothing() -> None:
    cache = DecodedGroups(0)
    read(cache, 1)
    assert present(cache, 20) == []


def test_the_bound_holds_under_many_threads() -> None:
    cache = DecodedGroups(BOUND)
    wrong: list[int] = []

    def reader(seed: int) -> None:
        for number in np.random.default_rng(seed).integers(0, 40, 500).tolist():
            read(cache, number, number + 1)
            found = cache.get(key(number))
            if found is not None and found["value"][0].as_py() != number:
                wrong.append(number)

    threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache._bytes == GROUP_BYTES * len(present(cache, 41)) == BOUND
