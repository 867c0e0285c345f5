"""A store that never answers holds up no read while another store has its partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.counters import sample
from support.fakes.fake_stores import FakeStore, FakeStores, state
from support.servers.logs import wait_until
from support.servers.queriers import TOPIC_ID, Context
from tsdb.answer.answer import Answer
from tsdb.answer.spec import ReadOptions, SelectSpec
from tsdb.model.errors import HoleInRange, TsdbError, Unavailable
from tsdb.ops.threads import watched_threads
from tsdb.query.stores.fan_out import ShareStreams, open_all
from tsdb.query.stores.hedge import HEDGES_MAX, HedgePlan, HedgeTimer
from tsdb.query.stores.routing import Routing, Share
from tsdb.reader.read_call import Caller

AFTER_S = 0.05
WITHIN_S = 60.0


class FrozenStore(FakeStore):
    """Never answers. A call ends when its caller ends."""

    def __init__(self, name: str, partitions: Sequence[int] = (0, 1)) -> None:
        super().__init__(name, [state(partition) for partition in partitions])
        self.called = threading.Event()
        self.ended = threading.Event()
        self.is_left = False  # Whether its call ended before its time.

    def select(self, spec: SelectSpec, caller: Caller) -> Iterator[Answer]:
        self.asked.append(spec)
        over = threading.Event()
        caller.add_callback(over.set)
        self.called.set()
        self.is_left = over.wait(WITHIN_S)
        self.ended.set()
        raise Unavailable("the caller left", reason="cancelled")
        yield


def store(name: str, *partitions: int, fail: TsdbError | None = None) -> FakeStore:
    found = FakeStore(name, [state(partition) for partition in partitions])
    found.fail = [] if fail is None else [fail]
    return found


def read(
    *stores: FakeStore,
    partitions: Sequence[int] = (0, 1),
    plan: HedgePlan | None = None,
    refusal: Callable[[Share, TsdbError], bool] = lambda share, error: False,
    context: Context | None = None,
) -> list[ShareStreams[Any]]:
    caller = context or Context()

    def start(share: Share, of: Caller) -> Sequence[Iterator[Any]]:
        spec = SelectSpec((), None, 0, 1, options=ReadOptions(partitions=share.partitions))
        return [share.store.select(spec, of)]

    for one in stores[1:]:
        # A read chooses this store after the first one.
        one.known = {partition: replace(known, lag_ms=10_000) for partition, known in one.known.items()}
    routing = Routing(FakeStores(*stores), TOPIC_ID, 0, history=False)
    return open_all(routing, partitions, start, caller, refusal, plan or HedgePlan(AFTER_S))


def names(opened: Sequence[ShareStreams[Any]]) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((one.share.store.name, one.share.partitions) for one in opened)


def test_a_store_that_never_answers_is_read_from_its_replica() -> None:
    frozen = FrozenStore("frozen")
    opened = read(frozen, store("other", 0, 1))
    assert names(opened) == [("other", (0, 1))]
    assert frozen.is_suspect
    assert frozen.ended.wait(WITHIN_S)
    assert frozen.is_left, "its call ended with the read"


def test_the_next_read_goes_to_the_replica_at_once() -> None:
    frozen, other = FrozenStore("frozen"), store("other", 0, 1)
    read(frozen, other)
    frozen.asked.clear()
    assert names(read(frozen, other, plan=HedgePlan(WITHIN_S))) == [("other", (0, 1))]
    assert not frozen.asked


def test_several_stores_together_take_the_place_of_one() -> None:
    opened = read(FrozenStore("frozen"), store("a", 0), store("b", 1))
    assert names(opened) == [("a", (0,)), ("b", (1,))]


class ManualHedges(HedgeTimer):
    """A timer whose functions run when the test calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[Callable[[], None]] = []

    def after(self, seconds: float, run: Callable[[], None]) -> None:
        self.due.append(run)


def test_a_store_that_has_answered_is_not_hedged() -> None:
    first, other, plan, timer = store("first", 0, 1), store("other", 0, 1), HedgePlan(AFTER_S), ManualHedges()
    plan.timer = timer
    assert names(read(first, other, plan=plan)) == [("first", (0, 1))]
    (late,) = timer.due
    late()
    assert not other.asked
    assert plan.capacity._value == HEDGES_MAX


def test_without_another_store_the_read_waits_for_its_own() -> None:
    frozen, context = FrozenStore("frozen"), Context()
    threading.Timer(4 * AFTER_S, context.leave).start()
    with pytest.raises(Unavailable, match="the caller left"):
        read(frozen, store("half", 0), context=context)


@pytest.fixture
def leaving() -> Iterator[Context]:
    """A caller that leaves once a hedge has failed."""
    caller, before = Context(), hedges("failed")

    def leave() -> None:
        wait_until(lambda: hedges("failed") > before)
        caller.leave()

    thread = threading.Thread(target=leave)
    thread.start()
    yield caller
    thread.join(WITHIN_S)


def hedges(result: str) -> float:
    return sample("tsdb_query_hedges_total", result=result)


def test_a_hedge_that_cannot_answer_leaves_the_read_to_its_store(leaving: Context) -> None:
    frozen = FrozenStore("frozen")
    behind = store("behind", 0, 1, fail=Unavailable("replaying", reason="replaying", retry_after_s=1.0))
    with pytest.raises(Unavailable, match="the caller left"):
        read(frozen, behind, context=leaving)
    assert len(behind.asked) == 1


def test_a_bug_in_a_hedge_ends_neither_the_read_nor_the_process(leaving: Context) -> None:
    class BrokenStore(FakeStore):
        def select(self, spec: SelectSpec, caller: Caller) -> Iterator[Answer]:
            raise KeyError("a bug")

    frozen = FrozenStore("frozen")
    with watched_threads() as failures, pytest.raises(Unavailable, match="the caller left"):
        read(frozen, BrokenStore("broken", [state(0), state(1)]), context=leaving)
    assert failures.failure() is None


def test_a_refusal_of_the_replica_is_an_answer() -> None:
    hole = HoleInRange("a hole", partition=0)
    seen: list[str] = []

    def refusal(share: Share, error: TsdbError) -> bool:
        seen.append(f"{share.store.name}: {error.message}")
        return False

    with pytest.raises(HoleInRange):
        read(FrozenStore("frozen"), store("other", 0, 1, fail=hole), refusal=refusal)
    assert seen == ["other: a hole"]


def test_a_handled_refusal_of_the_replica_asks_the_replica_again() -> None:
    other = store("other", 0, 1, fail=HoleInRange("a hole", partition=0))
    opened = read(FrozenStore("frozen"), other, refusal=lambda share, error: True)
    assert names(opened) == [("other", (0, 1))]
    assert len(other.asked) == 2


def test_hedges_over_the_bound_wait_for_room() -> None:
    plan, other, full = HedgePlan(AFTER_S, hedges_max=1), store("other", 0, 1), hedges("full")
    asked_before: list[object] = []

    def release() -> None:
        wait_until(lambda: hedges("full") > full)
        asked_before.extend(other.asked)
        plan.capacity.release()

    assert plan.capacity.acquire(blocking=False)
    thread = threading.Thread(target=release)
    thread.start()
    assert names(read(FrozenStore("frozen"), other, plan=plan)) == [("other", (0, 1))]
    thread.join(WITHIN_S)
    assert asked_before == []
    assert len(other.asked) == 1


def test_many_reads_at_once_are_all_answered() -> None:
    plan, found = HedgePlan(AFTER_S, hedges_max=4), []
    frozen = FrozenStore("frozen")
    threads = [
        threading.Thread(target=lambda: found.append(names(read(frozen, store("other", 0, 1), plan=plan))))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
    assert found == [[("other", (0, 1))]] * 20
