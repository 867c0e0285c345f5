"""A store is chosen by readiness, then depth, then lag. After a refusal the next store is called, and the last error is
the answer.
"""

from __future__ import annotations

import pytest

from support.fakes.fake_stores import FakeStore, FakeStores, state
from tsdb.model.errors import InvalidRequest, OutOfCoverage, Overloaded, TsdbError, Unavailable
from tsdb.query.stores.routing import NO_START_MS, Routing, Share, best_states

START_MS = 1000


def routing(*stores: FakeStore, start_ms: int = START_MS, history: bool = True) -> Routing:
    return Routing(FakeStores(*stores), "topic", start_ms, history=history)


def chosen(*stores: FakeStore, history: bool = True) -> tuple[str, bool]:
    (share,) = routing(*stores, history=history).shares([0])
    return share.store.name, share.alone


DEEP = state(coverage_ms=500)
SHALLOW = state(coverage_ms=2000)

CHOICES = {
    "memory that reaches the start": (DEEP, SHALLOW, True),
    "readiness before depth": (state(coverage_ms=2000), state(coverage_ms=500, ready=False), False),
    "the whole log in memory": (state(coverage_ms=5000, from_start=True), SHALLOW, True),
    "of two that reach, the one less behind": (state(lag_ms=500), state(coverage_ms=-9, lag_ms=4000), True),
    "of two that do not, the deeper": (state(coverage_ms=1500, lag_ms=9000), SHALLOW, False),
    "coverage from the very start on": (state(coverage_ms=START_MS), state(coverage_ms=START_MS + 1), True),
}


@pytest.mark.parametrize("case", CHOICES)
def test_the_best_store_is_chosen_in_any_order(case: str) -> None:
    best, other, alone = CHOICES[case]
    for _ in range(2):  # Equal stores would take turns; these differ.
        assert chosen(FakeStore("best", [best]), FakeStore("other", [other])) == ("best", alone)
        assert chosen(FakeStore("other", [other]), FakeStore("best", [best])) == ("best", alone)


def test_equal_stores_take_turns() -> None:
    stores = [FakeStore(name, [state()]) for name in "ab"]
    assert {chosen(*stores)[0] for _ in range(2)} == {"a", "b"}


def test_partitions_are_shared_out_by_store_and_by_whether_memory_reaches() -> None:
    left = FakeStore("left", [state(0), state(2), state(4, coverage_ms=2000)])
    right = FakeStore("right", [state(1), state(3)])
    shares = routing(left, right).shares([4, 3, 2, 1, 0])
    assert {(share.store.name, share.alone): share.partitions for share in shares} == {
        ("left", True): (0, 2),
        ("left", False): (4,),
        ("right", True): (1, 3),
    }


def test_without_a_history_every_store_answers_alone() -> None:
    assert chosen(FakeStore("a", [SHALLOW]), history=False) == ("a", True)


def refused(route: Routing, error: TsdbError) -> Share:
    (share,) = route.shares([0])
    route.refused(share, error)
    return share


def test_after_a_refusal_the_next_store_is_chosen_and_at_last_its_error_raised() -> None:
    route = routing(FakeStore("a", [state()]), FakeStore("b", [state(lag_ms=5000)]))
    assert refused(route, Unavailable("gone", reason="unreachable")).store.name == "a"
    assert refused(route, Unavailable("behind", reason="lagging")).store.name == "b"
    with pytest.raises(Unavailable, match="behind"):
        route.shares([0])


PASSED_ON = (
    Unavailable("x", reason="unreachable"),
    Overloaded("x", reason="concurrent_requests"),
    Overloaded("x", reason="memory", retry_after_s=1.0),
    InvalidRequest("x", reason="bad_partition"),
)
FINAL = (
    Overloaded("x", reason="series_limit"),
    InvalidRequest("x", reason="regex_malformed"),
    Unavailable("x", reason="deadline"),
    TsdbError("x"),
)


@pytest.mark.parametrize("error", PASSED_ON, ids=lambda error: f"{type(error).__name__} {error.reason}")
def test_an_error_that_another_store_may_avoid_is_passed_on(error: TsdbError) -> None:
    route = routing(FakeStore("a", [state()]), FakeStore("b", [state(lag_ms=5000)]))
    refused(route, error)
    assert [share.store.name for share in route.shares([0])] == ["b"]


@pytest.mark.parametrize("error", FINAL, ids=lambda error: f"{type(error).__name__} {error.reason}")
def test_an_error_of_every_store_is_final(error: TsdbError) -> None:
    route = routing(FakeStore("a", [state()]), FakeStore("b", [state(lag_ms=5000)]))
    with pytest.raises(type(error)):
        refused(route, error)


def test_memory_that_moved_on_is_joined_with_history() -> None:
    route = routing(FakeStore("a", [state()]))
    assert refused(route, OutOfCoverage("moved")).alone
    (share,) = route.shares([0])
    assert (share.store.name, share.alone) == ("a", False)


def test_memory_that_moved_on_is_skipped_without_a_history() -> None:
    route = routing(FakeStore("a", [state()]), FakeStore("b", [state(lag_ms=5000)]), history=False)
    refused(route, OutOfCoverage("moved"))
    assert [share.store.name for share in route.shares([0])] == ["b"]
    refused(route, OutOfCoverage("here too"))
    with pytest.raises(OutOfCoverage, match="here too"):
        route.shares([0])


def test_a_partition_without_a_store_is_named() -> None:
    with pytest.raises(Unavailable, match="partition 3; 1 stores are known") as caught:
        routing(FakeStore("a", [state(0)])).shares([0, 3])
    assert (caught.value.reason, caught.value.metadata["partition"]) == ("no_store", "3")


def test_stores_of_another_experiment_are_named_where_there_is_no_other() -> None:
    store = FakeStore("a", [])
    store.apart = True
    with pytest.raises(Unavailable, match="1 stores are known, 1 of them of another experiment than this querier"):
        routing(store).shares([0])


def test_stores_of_another_log_are_ignored() -> None:
    other = FakeStore("a", [state(topic_id="made anew")])
    with pytest.raises(Unavailable, match="the stores hold log topic made anew; this querier reads topic topic"):
        routing(other).shares([0])
    assert chosen(other, FakeStore("b", [state(ready=False)])) == ("b", True)


def test_the_state_shown_is_that_of_the_store_that_reads_choose() -> None:
    stores = FakeStores(
        FakeStore("a", [state(0, ready=False), state(1)]), FakeStore("b", [state(0, coverage_ms=7), state(2)])
    )
    found = best_states(stores, "topic", range(4))
    assert [(one.partition, one.ready, one.coverage_start_ms) for one in found] == [
        (0, True, 7),
        (1, True, 0),
        (2, True, 0),
    ]
    assert NO_START_MS > 1 << 61
