"""Acks: a batch ends once, with its last answer, whichever thread brings it and whenever."""

from __future__ import annotations

import threading

import pytest

from ingest.acks import Acks, Answer
from tsdb.log.interface import Appended
from tsdb.model.errors import Unavailable


def test_inline_answers_do_not_end_a_batch_half_sent() -> None:
    ended: list[list[Answer | None]] = []
    acks = Acks(ended.append)
    acks.expect()(Appended(0, 0, 0))
    acks.expect()(Unavailable("away"))
    assert ended == []
    acks.seal()
    assert len(ended) == 1


def test_answers_keep_the_order_of_the_appends() -> None:
    acks = Acks(lambda answers: None)
    callbacks = [acks.expect() for _ in range(5)]
    acks.seal()
    for index in (3, 0, 4, 2, 1):
        callbacks[index](Appended(0, index, 0))
    assert [answer.offset for answer in acks.answers if isinstance(answer, Appended)] == [0, 1, 2, 3, 4]


def test_an_empty_batch_ends_at_once() -> None:
    ended: list[list[Answer | None]] = []
    Acks(ended.append).seal()
    assert ended == [[]]


def test_an_append_answered_twice_is_a_bug() -> None:
    acks = Acks(lambda answers: None)
    callback = acks.expect()
    callback(Appended(0, 0, 0))
    with pytest.raises(AssertionError, match="answered twice"):
        callback(Appended(0, 0, 0))


def test_answers_from_many_threads_end_a_batch_once() -> None:
    ended: list[object] = []
    acks = Acks(ended.append)
    callbacks = [acks.expect() for _ in range(400)]
    acks.seal()

    def answer(some: int) -> None:
        for callback in callbacks[some::4]:
            callback(Appended(0, 0, 0))

    threads = [threading.Thread(target=answer, args=(some,)) for some in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 1
