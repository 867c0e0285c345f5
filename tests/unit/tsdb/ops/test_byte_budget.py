"""A budget of bytes: bounded, fair between owners, given back, waited for, closed. The oracle is a list of sizes."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.counters import sample
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.metrics import gauge

WITHIN_S = 60.0
_gauge = gauge("tsdb_test_budget_bytes", "Reserved bytes of a test.")


def test_the_limit_itself_is_reserved_and_one_byte_more_is_not() -> None:
    budget = ByteBudget(10, gauge=_gauge)
    assert budget.take(6)
    assert budget.take(4)
    assert not budget.take(1)
    assert (budget.bytes, sample("tsdb_test_budget_bytes")) == (10, 10)
    budget.give_back(4)
    assert budget.take(3)
    budget.give_back(9)
    assert (budget.bytes, sample("tsdb_test_budget_bytes")) == (0, 0)


def test_a_lower_limit_holds_for_one_reservation() -> None:
    budget = ByteBudget(10)
    assert budget.take(6, limit=8)
    assert not budget.take(3, limit=8)
    assert budget.take(3)


@pytest.mark.parametrize("admits_one", [False, True])
def test_a_large_reservation_is_made_alone_only_where_one_is_admitted(admits_one: bool) -> None:
    budget = ByteBudget(10, admits_one=admits_one)
    assert budget.take(11) is admits_one
    if admits_one:
        assert not budget.take(1)
        budget.give_back(11)
    assert budget.take(1)
    assert not budget.take(11)


def test_an_owner_has_at_most_its_share_and_another_finds_room() -> None:
    budget = ByteBudget(10, share_max=5)
    assert budget.take(5, owner="a")
    assert not budget.take(1, owner="a")
    assert budget.take(5, owner="b")
    assert not budget.take(1, owner="c")
    budget.give_back(2, "a")
    assert (budget.bytes_of("a"), budget.bytes_of("b"), budget.bytes_of("c")) == (3, 5, 0)
    assert budget.take(2, owner="c")


def test_a_wait_ends_with_room_with_time_and_with_a_close() -> None:
    budget = ByteBudget(10)
    assert budget.take(10)
    assert not budget.take(1, within_s=0.01)
    freeing = threading.Timer(0.01, budget.give_back, (10,))
    freeing.start()
    assert budget.take(10, within_s=WITHIN_S)
    freeing.join()
    closing = threading.Timer(0.01, budget.close)
    closing.start()
    assert not budget.take(1, within_s=WITHIN_S)
    closing.join()


def test_after_a_close_nothing_is_reserved_and_a_wait_ends_with_the_last_byte() -> None:
    budget = ByteBudget(10, admits_one=True)
    assert budget.take(10)
    budget.close()
    assert budget.closed
    assert not budget.wait_idle(0.01)
    freeing = threading.Timer(0.01, budget.give_back, (10,))
    freeing.start()
    assert budget.wait_idle(WITHIN_S)
    freeing.join()
    assert not budget.take(1)


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 12), st.booleans()), max_size=40)


@given(STEPS, st.booleans())
def test_any_order_of_reservations_stays_within_the_limits(
    steps: list[tuple[str, int, bool]], admits_one: bool
) -> None:
    budget, held = ByteBudget(20, share_max=12, admits_one=admits_one), list[tuple[str, int]]()
    for owner, size, frees in steps:
        if frees and held:
            freed_owner, freed = held.pop(0)
            budget.give_back(freed, freed_owner)
        total, own = sum(size for _, size in held), sum(size for one, size in held if one == owner)
        fits = (admits_one and not held) or (total + size <= 20 and own + size <= 12)
        assert budget.take(size, owner=owner) is fits
        if fits:
            held.append((owner, size))
        assert budget.bytes == sum(size for _, size in held)
        assert budget.bytes_of(owner) == sum(size for one, size in held if one == owner)


def test_threads_that_take_and_give_back_never_pass_the_limit() -> None:
    budget, over = ByteBudget(3), list[int]()

    def work() -> None:
        for _ in range(500):
            if budget.take(1, within_s=WITHIN_S):
                if budget.bytes > 3:
                    over.append(budget.bytes)
                budget.give_back(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not over
    assert budget.wait_idle(0)
