"""Slots of queries: fair to each client, and lent while their work waits for another process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from support.servers.logs import wait_until
from tsdb.api.prometheus.work_pool import WorkPool
from tsdb.model.errors import Overloaded
from tsdb.ops.threads import waiting_for_others

WITHIN_S = 60.0


class Bench:
    """A pool, and work that goes on when `gate` opens."""

    def __init__(self, slots: int, waiting_max: int = 64, spare: int = 8) -> None:
        self.pool = WorkPool("query-test", slots, waiting_max, spare=spare)
        self.pool.start()
        self.gate = threading.Event()
        self.done: list[str] = []
        self.running: list[str] = []
        self.most = 0
        self._lock = threading.Lock()

    def submit(self, name: str, client: str = "a", *, waits: bool = False) -> None:
        self.pool.submit(lambda: self._work(name, waits=waits), client)

    def _work(self, name: str, *, waits: bool) -> None:
        with self._lock:
            self.running.append(name)
            self.most = max(self.most, len(self.running))
        if waits:
            with waiting_for_others():
                assert self.gate.wait(WITHIN_S)
        else:
            assert self.gate.wait(WITHIN_S)
        with self._lock:
            self.running.remove(name)
            self.done.append(name)

    def close(self) -> None:
        self.gate.set()
        self.pool.close()
        assert self.pool.join(WITHIN_S)


MakeBench = Callable[..., Bench]


@pytest.fixture
def bench() -> Iterator[MakeBench]:
    made: list[Bench] = []

    def make(slots: int, waiting_max: int = 64, spare: int = 8) -> Bench:
        made.append(Bench(slots, waiting_max, spare))
        return made[-1]

    yield make
    for one in made:
        one.close()


def quick(bench: Bench, client: str) -> threading.Event:
    ran = threading.Event()
    bench.pool.submit(ran.set, client)
    return ran


def test_work_that_waits_for_a_store_lends_the_only_slot(bench: MakeBench) -> None:
    one = bench(1)
    for number in range(4):
        one.submit(f"stuck {number}", waits=True)
    assert quick(one, "a").wait(WITHIN_S)
    assert len(one.running) == 4


def test_work_that_computes_keeps_its_slot(bench: MakeBench) -> None:
    one = bench(1)
    one.submit("computes")
    wait_until(lambda: one.running == ["computes"], WITHIN_S)
    assert not quick(one, "a").wait(0.3)


def test_work_that_has_waited_takes_a_slot_back(bench: MakeBench) -> None:
    one = bench(1)
    began, after = threading.Event(), threading.Event()

    def work() -> None:
        with waiting_for_others():
            began.set()
            wait_until(lambda: "computes" in one.running, WITHIN_S)
        after.set()

    one.pool.submit(work, "a")
    assert began.wait(WITHIN_S)
    one.submit("computes")
    wait_until(lambda: one.running == ["computes"], WITHIN_S)
    assert not after.wait(0.2), "its slot is lent"
    one.gate.set()
    assert after.wait(WITHIN_S)


def test_one_client_does_not_hold_the_slots_of_others(bench: MakeBench) -> None:
    one = bench(2)
    for number in range(10):
        one.submit(f"greedy {number}", "greedy")
    wait_until(lambda: len(one.running) == 2, WITHIN_S)
    assert quick(one, "other").wait(WITHIN_S), "while the greedy one computes"
    assert len(one.running) == 2


def test_clients_take_turns_in_the_queue(bench: MakeBench) -> None:
    one = bench(1, spare=0)
    one.submit("first", "a")
    wait_until(lambda: one.running == ["first"], WITHIN_S)
    order: list[str] = []
    for client in ("a", "a", "a", "b", "b"):
        one.pool.submit(lambda client=client: order.append(client), client)  # type: ignore[misc]
    one.gate.set()
    wait_until(lambda: len(order) == 5, WITHIN_S)
    assert order[:4] in (["b", "a", "b", "a"], ["a", "b", "a", "b"], ["b", "b", "a", "a"])


def test_a_full_queue_of_one_client_leaves_room_for_the_first_of_another(bench: MakeBench) -> None:
    one = bench(1, waiting_max=3)
    one.submit("runs", "greedy")
    wait_until(lambda: one.running == ["runs"], WITHIN_S)
    for number in range(3):
        one.submit(f"waits {number}", "greedy")
    with pytest.raises(Overloaded, match="1 queries run and 3 wait; the limit is 3 waiting"):
        one.submit("too many", "greedy")
    assert quick(one, "other").wait(WITHIN_S)


def test_the_room_for_other_clients_is_bounded(bench: MakeBench) -> None:
    one = bench(1, waiting_max=3, spare=0)
    one.submit("runs", "greedy")
    wait_until(lambda: one.running == ["runs"], WITHIN_S)
    refused = 0
    for number in range(40):
        try:
            one.submit(f"waits {number}", f"client {number}")
        except Overloaded:
            refused += 1
    assert refused >= 30


def test_all_queued_work_is_done_before_the_end(bench: MakeBench) -> None:
    one = bench(2)
    for number in range(40):
        one.submit(str(number), f"client {number % 5}", waits=bool(number % 2))
    one.close()
    assert sorted(one.done, key=int) == [str(number) for number in range(40)]


def test_computing_work_never_exceeds_the_slots_of_one_client(bench: MakeBench) -> None:
    one = bench(2, waiting_max=200)
    one.gate.set()
    for number in range(200):
        one.submit(str(number))
    wait_until(lambda: len(one.done) == 200, WITHIN_S)
    assert one.most <= 2
