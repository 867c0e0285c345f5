"""Series and labels of PromQL over a querier: those of memory and history, each once, or a refusal, or a named loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from support.data.heads import canonical_of, id_of
from support.fakes.fake_stores import FakeStore, FakeStores, state
from support.servers.queriers import Context, sources_over
from support.servers.seams import END_MS, NUMBERS, START_MS, WINDOW_MS, Seam
from tsdb.client import ReadOptions
from tsdb.model.errors import HoleInRange, InvalidRequest, Overloaded, Unavailable
from tsdb.query.promql.storage import QuerierStorage
from tsdb.query.sources import Sources
from tsdb.reader.read_call import ReadCalls, SelectLimits
from tsdb.selector.selectors import parse_selector
from tsdb.v1 import reader_pb2

FORGOTTEN = 3  # A series that memory has dropped.
M_0 = parse_selector("m_0")


@pytest.fixture
def seam() -> Seam:
    made = Seam()
    made.head.index.forget(made.head.index.refs_of(np.array([id_of(FORGOTTEN)], np.uint64)))
    return made


@contextmanager
def metadata(
    sources: Sources, options: ReadOptions = ReadOptions(), limits: SelectLimits = SelectLimits()
) -> Iterator[QuerierStorage]:
    with QuerierStorage(sources, limits, ReadCalls().of(Context()), options) as reads:
        yield reads


def labels_of(*numbers: int) -> list[bytes]:
    return [canonical_of(number) for number in sorted(numbers, key=id_of)]


def test_series_before_memory_include_those_of_history(seam: Seam) -> None:
    with metadata(seam.sources) as reads:
        assert reads.series((), START_MS, END_MS) == labels_of(*NUMBERS)
        assert reads.series(M_0, START_MS, END_MS) == labels_of(0, FORGOTTEN)
        assert reads.warnings == ()


def test_series_in_memory_are_those_with_a_sample_in_the_range_both_ends_included(seam: Seam) -> None:
    last_ms = max(seam.twin.times(0))
    with metadata(seam.sources) as reads:
        assert reads.series(M_0, last_ms, last_ms) == labels_of(0)
        assert reads.series(M_0, last_ms - 1, last_ms) == reads.series(M_0, last_ms, last_ms + 1) == labels_of(0)
        assert reads.series(M_0, last_ms - 2, last_ms - 1) == reads.series(M_0, last_ms + 1, last_ms + 2) == []
        assert reads.series(M_0) == labels_of(0)
    assert seam.history.calls == []


def test_times_beyond_all_samples_are_no_error(seam: Seam) -> None:
    with metadata(seam.sources) as reads:
        assert reads.series(M_0, seam.coverage_ms, 1 << 63) == labels_of(0)
        assert reads.series(M_0, 1 << 63, 1 << 64) == []


def test_label_names_and_values_are_those_of_memory_and_history(seam: Seam) -> None:
    with metadata(seam.sources) as reads:
        assert reads.label_names((), START_MS, END_MS) == reads.label_names(M_0) == ["__name__", "instance", "job"]
        assert reads.label_names(parse_selector("m_9"), START_MS, END_MS) == []
        assert reads.label_values("instance", M_0, START_MS, END_MS) == ["i0", "i1"]
        assert reads.label_values("instance", M_0) == ["i0"]
        assert reads.label_values("__name__", ()) == ["m_0", "m_1", "m_2"]
        assert reads.label_values("absent", (), START_MS, END_MS) == []


READS: dict[str, Any] = {
    "series": lambda reads: reads.series(M_0, START_MS, END_MS),
    "label names": lambda reads: reads.label_names(M_0, START_MS, END_MS),
    "label values": lambda reads: reads.label_values("instance", M_0, START_MS, END_MS),
}


@pytest.mark.parametrize("read", READS)
def test_history_that_does_not_reach_memory_is_refused(seam: Seam, read: str) -> None:
    seam.history.loaded_by = {}
    with metadata(seam.sources) as reads, pytest.raises(Unavailable, match="does not reach memory"):
        READS[read](reads)


@pytest.mark.parametrize("read", READS)
def test_a_hole_is_refused_and_with_allow_holes_named(seam: Seam, read: str) -> None:
    seam.history.add_hole(0, START_MS, START_MS + WINDOW_MS)
    with metadata(seam.sources) as reads, pytest.raises(HoleInRange):
        READS[read](reads)
    with metadata(seam.sources, ReadOptions(allow_holes=True)) as reads:
        assert READS[read](reads)
        (warning,) = reads.warnings
        assert "partition 0" in warning


@pytest.mark.parametrize("read", READS)
def test_a_partition_that_lags_is_refused_and_with_allow_stale_named(seam: Seam, read: str) -> None:
    partition = seam.served.partitions[0]
    assert partition.is_ready()
    seam.served.clock.advance(60_000)
    partition.observe_high_watermark(seam.head.next_offset + 10, seam.served.clock.monotonic())
    seam.served.clock.advance(1000)
    with metadata(seam.sources) as reads, pytest.raises(Unavailable, match="is behind the log"):
        READS[read](reads)
    with metadata(seam.sources, ReadOptions(allow_stale=True)) as reads:
        assert READS[read](reads) == READS[read](reads)
        (warning,) = reads.warnings
        assert warning.startswith("partition 0 is behind the log: lagging")


def test_answers_over_a_limit_are_refused(seam: Seam) -> None:
    with metadata(seam.sources, limits=SelectLimits(series_max=5)) as reads, pytest.raises(Overloaded) as refused:
        reads.series((), START_MS, END_MS)
    assert refused.value.reason == "series_limit"


def test_a_label_without_a_name_is_refused(seam: Seam) -> None:
    with metadata(seam.sources) as reads, pytest.raises(InvalidRequest) as refused:
        reads.label_values("", ())
    assert refused.value.reason == "bad_label"


def test_an_answer_that_is_cut_off_is_refused() -> None:
    class Cut(FakeStore):
        def series_messages(self, request: reader_pb2.SeriesRequest) -> Iterator[reader_pb2.SeriesResponse]:
            yield next(super().series_messages(request))

    sources = sources_over(FakeStores(Cut("a", [state()])), None, window_ms=WINDOW_MS)
    with metadata(sources) as reads, pytest.raises(Unavailable) as refused:
        reads.series(M_0)
    assert refused.value.reason == "answer_cut"
