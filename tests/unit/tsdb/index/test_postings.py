from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from tsdb.index.postings import Postings
from tsdb.index.postings_kernels import SMALL_MAX


def u32(*numbers: int) -> NDArray[np.uint32]:
    return np.array(numbers, np.uint32)


def add(postings: Postings, pair: int, *refs: int) -> None:
    postings.add(np.full(len(refs), pair, np.uint32), u32(*refs), pair + 1)


def remove(postings: Postings, pair: int, *refs: int) -> None:
    postings.remove(np.full(len(refs), pair, np.uint32), u32(*refs))


def refs_of(postings: Postings, *pairs: int) -> list[int]:
    return sorted(postings.union(u32(*pairs)))


@pytest.mark.parametrize("step", [1, 2, 3, SMALL_MAX, SMALL_MAX + 1])
@pytest.mark.parametrize("total", [1, 2, SMALL_MAX, SMALL_MAX + 1, 40])
def test_a_pair_keeps_its_refs_however_many_come_at_once(total: int, step: int) -> None:
    postings = Postings()
    refs = [7 * number for number in range(total)]
    for start in range(0, total, step):
        add(postings, 3, *refs[start : start + step])
    assert refs_of(postings, 3) == refs
    assert postings.counts().tolist() == [0, 0, 0, total]


@pytest.mark.parametrize("total", [1, 2, 3, SMALL_MAX, SMALL_MAX + 1, 40])
def test_a_pair_may_lose_its_refs_in_any_order_and_gain_them_again(total: int) -> None:
    refs = list(range(total))
    for seed in range(5):
        postings = Postings()
        add(postings, 0, *refs)
        order = random.Random(seed).sample(refs, total)
        for gone, ref in enumerate(order):
            remove(postings, 0, ref)
            assert refs_of(postings, 0) == sorted(order[gone + 1 :])
        assert postings.counts().tolist() == [0]
        add(postings, 0, *refs)
        assert refs_of(postings, 0) == refs


def test_a_union_holds_refs_of_small_large_and_empty_pairs_once() -> None:
    postings = Postings()
    add(postings, 0, 1)
    add(postings, 1, *range(100))
    add(postings, 2, 100, 101)
    remove(postings, 0, 1)
    add(postings, 3, 1, 200)
    assert refs_of(postings, 0, 1, 2, 3) == [*range(102), 200]
    assert refs_of(postings) == []


def test_a_union_is_not_changed_by_later_updates() -> None:
    postings = Postings()
    add(postings, 0, *range(50))
    union = postings.union(u32(0))
    add(postings, 0, 50)
    assert len(union) == 50


def test_a_pair_of_one_series_costs_no_object() -> None:
    numbers = np.arange(10_000, dtype=np.uint32)
    postings = Postings()
    for start in range(0, 10_000, 1000):
        postings.add(numbers[start : start + 1000], numbers[start : start + 1000], start + 1000)
    assert postings.nbytes / 10_000 <= 15
    assert refs_of(postings, 77, 9999) == [77, 9999]
