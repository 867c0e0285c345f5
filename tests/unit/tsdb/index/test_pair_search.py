"""A search over label values is cut into pieces: it can be called off, and slow ones share one core."""

from __future__ import annotations

import threading

import pytest

from support.data.long_values import SLOW_PATTERN, head_of_long_values
from tsdb.model.selector import Matcher, MatchType

SLOW = (Matcher(MatchType.REGEX, "long", SLOW_PATTERN),)
QUICK = (Matcher(MatchType.REGEX, "long", "[abcx]{3}.*"),)
WITHIN_S = 60.0


class CalledOff(Exception):
    """Raised once the reader has left."""


class Going:
    """Returns True for `looks` calls."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CalledOff


def test_a_slow_search_is_called_off_between_pieces_of_few_values() -> None:
    index = head_of_long_values(2_000).index
    with pytest.raises(CalledOff):
        index.select(SLOW, Going(3).check)


def test_a_quick_search_looks_seldom_at_its_deadline_and_finds_all() -> None:
    index = head_of_long_values(2_000).index
    going = Going(2_000)
    assert len(index.select(QUICK, going.check)) == 2_000
    assert going.left > 1_000, "more than one look for two values"


def test_slow_searches_take_turns_and_one_that_waits_can_be_called_off() -> None:
    index = head_of_long_values(2_000).index
    ended = [threading.Event() for _ in range(4)]
    leave = threading.Event()

    def check() -> None:
        if leave.is_set():
            raise CalledOff

    def search(number: int) -> None:
        with pytest.raises(CalledOff):
            index.select(SLOW, check)
        ended[number].set()

    for number in range(4):
        threading.Thread(target=search, args=(number,), daemon=True).start()
    assert not ended[0].wait(0.5)
    leave.set()
    assert all(one.wait(WITHIN_S) for one in ended)
