"""Late minutes show the number of waiting samples to any thread at any time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tsdb.chunks.late_minute import LateSamples
from tsdb.chunks.late_minutes import LateMinutes

MINUTE_MS = 60_000
ROUNDS = 3_000


@pytest.fixture
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def take(late: LateMinutes, minute: int, samples: int) -> None:
    """One record of the minute with `samples` late samples."""
    ids, numbers = np.zeros(samples, np.uint64), np.zeros(samples, np.int64)
    late.take(
        np.array([minute]),
        np.array([minute * MINUTE_MS]),
        numbers,
        LateSamples(ids, ids, numbers, np.zeros(samples), numbers),
    )


def test_samples_wait_from_when_they_came_until_their_minute_is_taken_out() -> None:
    late = LateMinutes(0, MINUTE_MS, 0)
    for minute, samples in enumerate([2, 3, 0, 4]):
        take(late, minute, samples)
    assert late.samples == 9
    assert [late.take_ended().minute.samples for _ in range(len(late.ended))] == [2, 3]
    assert late.samples == 4


@pytest.mark.usefixtures("switching")
def test_another_thread_may_read_the_count_while_minutes_come_and_go() -> None:
    late, done = LateMinutes(0, MINUTE_MS, 0), threading.Event()
    found: list[BaseException] = []

    def ask() -> None:
        try:
            while not done.is_set():
                assert 0 <= late.samples <= 60
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for minute in range(ROUNDS):
        take(late, minute, 1)
        if len(late.ended) > 50:
            late.take_ended()
    done.set()
    thread.join()
    assert found == []
