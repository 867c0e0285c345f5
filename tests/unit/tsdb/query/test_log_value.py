"""A log that never answers holds up no read for longer than the wait, and the last value is known as old."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable
from tsdb.query.log_value import Known, LogValue

WAIT_S = 0.05
WITHIN_S = 60.0


class Frozen:
    """A log that answers until it is frozen."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.reads = 0

    def read(self) -> int:
        self.reads += 1
        number = self.reads
        assert self.answers.wait(WITHIN_S)
        return number


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    log = Frozen()
    yield log
    log.answers.set()


def value_of(log: Frozen, clock: ManualClock, wait_s: float = WAIT_S) -> LogValue[int]:
    return LogValue("value", log.read, clock, every_s=1.0, again_s=10.0, wait_s=wait_s)


def first_known(value: LogValue[int]) -> Known[int]:
    """The first answer. On a busy machine the log may answer after the wait."""
    give_up_at = time.monotonic() + WITHIN_S
    while time.monotonic() < give_up_at:
        with contextlib.suppress(Unavailable):
            return value.get()
        time.sleep(0.001)
    pytest.fail("the late answer was never used")


def test_a_log_that_never_answers_is_waited_for_once_and_then_not_at_all(frozen: Frozen) -> None:
    frozen.answers.clear()
    value = value_of(frozen, ManualClock(), wait_s=0.5)
    began = time.monotonic()
    with pytest.raises(Unavailable) as refused:
        value.get()
    assert time.monotonic() - began >= 0.5
    assert refused.value.reason == "log_slow"
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(Unavailable):
            value.get()
    assert time.monotonic() - began < 25.0, "100 waits take 50 s"
    assert frozen.reads == 1


def test_the_last_value_is_known_as_old_while_the_log_does_not_answer(frozen: Frozen) -> None:
    clock = ManualClock()
    value = value_of(frozen, clock)
    assert first_known(value) == Known(1, 0.0, is_fresh=True)
    frozen.answers.clear()
    clock.advance(3_000)
    known = value.get()
    assert (known.value, known.at, known.is_fresh) == (1, 0.0, False)


def test_an_answer_that_came_late_is_used(frozen: Frozen) -> None:
    clock = ManualClock()
    value = value_of(frozen, clock)
    frozen.answers.clear()
    with pytest.raises(Unavailable):
        value.get()
    frozen.answers.set()
    assert first_known(value).value == 1
    assert frozen.reads == 1


def test_one_read_after_the_pause_tries_again(frozen: Frozen) -> None:
    clock = ManualClock()

    def away() -> int:
        frozen.reads += 1
        raise Unavailable("away", reason="log_unavailable")

    value = LogValue[int]("value", away, clock, every_s=1.0, again_s=10.0, wait_s=WITHIN_S)
    for _ in range(3):
        with pytest.raises(Unavailable, match="away"):
            value.get()
    assert frozen.reads == 1
    clock.advance(10_000)
    with pytest.raises(Unavailable):
        value.get()
    assert frozen.reads == 2


def test_reads_that_meet_share_one_request(frozen: Frozen) -> None:
    frozen.answers.clear()
    value = value_of(frozen, ManualClock(), wait_s=WITHIN_S)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(value.get().value)) for _ in range(8)]
    for thread in threads:
        thread.start()
    frozen.answers.set()
    for thread in threads:
        thread.join(WITHIN_S)
    assert found == [1] * 8
    assert frozen.reads == 1
