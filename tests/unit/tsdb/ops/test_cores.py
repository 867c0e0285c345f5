"""Work on several cores: every item once, results in order, errors raised after all threads have ended."""

from __future__ import annotations

import threading

import pytest

from tsdb.ops import cores
from tsdb.ops.cores import LARGE_BYTES, on_cores, over_parts

ITEMS = range(200)


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "core_count", lambda: 3)


def test_results_come_in_the_order_of_the_items() -> None:
    threads, caller, both = set(), threading.get_ident(), threading.Event()

    def square(item: int) -> int:
        threads.add(threading.get_ident())
        if len(threads) > 1 and caller in threads:
            both.set()
        assert both.wait(60.0), "the caller or the others have all items"
        return item * item

    assert on_cores(square, ITEMS, LARGE_BYTES) == [item * item for item in ITEMS]
    assert len(threads) <= 3


@pytest.mark.parametrize(("items", "size"), [(ITEMS, LARGE_BYTES - 1), ([7], 1 << 40), ([], 1 << 40)])
def test_small_work_and_one_item_stay_on_the_callers_thread(items: list[int], size: int) -> None:
    assert on_cores(lambda item: threading.get_ident(), items, size) == [threading.get_ident()] * len(items)


def test_an_error_is_raised_after_all_threads_have_ended() -> None:
    before = threading.active_count()

    def fail(item: int) -> int:
        if item == 50:
            raise ValueError("item 50")
        return item

    with pytest.raises(ValueError, match="item 50"):
        on_cores(fail, ITEMS, LARGE_BYTES)
    assert threading.active_count() == before


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 100])
@pytest.mark.parametrize("size", [LARGE_BYTES - 1, LARGE_BYTES])
def test_parts_cover_the_range_once(count: int, size: int) -> None:
    covered: list[int] = []
    parts: list[slice] = []

    def work(part: slice) -> None:
        parts.append(part)
        covered.extend(range(part.start, part.stop))

    over_parts(work, count, size)
    assert sorted(covered) == list(range(count))
    assert len(parts) == (min(count, 6) if size == LARGE_BYTES else min(count, 1))
