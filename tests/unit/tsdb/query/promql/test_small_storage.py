"""The storage of a trial reads as that of every query does, or raises before a read that is large or may wait."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from support.data.heads import Record, apply, new_head
from support.servers.queriers import Context, ServedHeads, one_store, sources_over, stored
from support.servers.seams import END_MS, START_MS, WINDOW_MS, Seam
from tsdb.answer.spec import EXACT, ReadOptions
from tsdb.model.errors import Overloaded
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.promql.storage import SMALL_SERIES_MAX, NotSmall, SmallStorage
from tsdb.query.sources import Sources
from tsdb.reader.read_call import ReadCalls, SelectLimits
from tsdb.selector.selectors import parse_selector
from tsdb.store.reads import FEW_SERIES

WITHIN_S = 10.0
SELECTOR = '{job="test"}'


def read(
    sources: Sources,
    selector: str,
    start_ms: int,
    end_ms: int,
    options: ReadOptions = EXACT,
) -> StoredSeries:
    with ReadCalls().of(Context()) as call:
        storage = SmallStorage(sources, SelectLimits(), call, options)
        return storage.select(parse_selector(selector), start_ms, end_ms)


def store_of(series: int) -> Sources:
    """A store with a sample of each of the first 501 series."""
    head = new_head(series=series)
    apply(head, [Record(0, 100, tuple((number, 100, 1.0) for number in range(SMALL_SERIES_MAX + 1)))])
    served = ServedHeads({0: head})
    served.catch_up()
    return sources_over(one_store(served), None, window_ms=WINDOW_MS)


def test_a_read_of_memory_is_that_of_every_query() -> None:
    seam = Seam()
    small = read(seam.sources, SELECTOR, seam.coverage_ms, END_MS)
    whole = stored(seam.sources, SELECTOR, seam.coverage_ms, END_MS)
    assert small.labels == whole.labels
    assert len(small.ts_ms) > 0
    for name in ("starts", "ts_ms", "values"):
        assert np.array_equal(getattr(small, name), getattr(whole, name))


def test_a_read_of_history_is_not_small() -> None:
    seam = Seam()
    with pytest.raises(NotSmall):
        read(seam.sources, SELECTOR, START_MS, END_MS)


def test_a_read_that_may_wait_for_watermarks_is_not_small() -> None:
    seam = Seam()
    with pytest.raises(NotSmall):
        read(seam.sources, SELECTOR, seam.coverage_ms, END_MS, ReadOptions(max_lag_ms=10))


def test_a_read_that_would_wait_for_the_writer_is_not_small() -> None:
    seam = Seam()
    is_held, may_end = threading.Event(), threading.Event()

    def write() -> None:
        with seam.head.contents.lock:
            is_held.set()
            may_end.wait(WITHIN_S)

    writer = threading.Thread(target=write)
    writer.start()
    assert is_held.wait(WITHIN_S)
    with pytest.raises(NotSmall):
        read(seam.sources, SELECTOR, seam.coverage_ms, END_MS)
    may_end.set()
    writer.join()
    assert len(read(seam.sources, SELECTOR, seam.coverage_ms, END_MS).labels) > 0


def test_a_read_of_many_series_is_refused() -> None:
    sources = store_of(SMALL_SERIES_MAX + 1)
    with pytest.raises(Overloaded) as refused:
        read(sources, SELECTOR, 0, 200)
    assert refused.value.reason == "series_limit"
    assert len(read(sources, '{__name__="m_0"}', 0, 200).labels) == SMALL_SERIES_MAX // 3 + 1


def test_a_store_of_many_series_is_not_searched() -> None:
    sources, selector = store_of(FEW_SERIES + 1), '{instance=~"i[0-3]"}'
    with pytest.raises(NotSmall):
        read(sources, selector, 0, 200)
    whole = stored(sources, selector, 0, 200)
    assert read(sources, selector, 0, 200).labels == whole.labels
    assert len(whole.labels) == 12
