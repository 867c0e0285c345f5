"""Series and labels over the seam are those of memory and of history, each once, or the read is refused, as for
samples.
"""

from __future__ import annotations

import numpy as np
import pytest

from support.data.heads import canonical_of, id_of
from support.servers.queriers import context
from support.servers.seams import END_MS, NUMBERS, START_MS, WINDOW_MS, Seam
from tsdb.model.errors import HoleInRange, OutOfCoverage, Unavailable
from tsdb.v1 import common_pb2, reader_pb2

FORGOTTEN = 3  # A series that memory has dropped.
M = common_pb2.Matcher(name="__name__", value="m_0")


@pytest.fixture
def seam() -> Seam:
    made = Seam()
    made.head.index.forget(made.head.index.refs_of(np.array([id_of(FORGOTTEN)], np.uint64)))
    return made


def series(seam: Seam, **fields: object) -> dict[int, tuple[int, int]]:
    """{number: (first seen, last seen)}"""
    request = reader_pb2.SeriesRequest(**fields)  # type: ignore[arg-type]
    header, block = seam.service.Series(request, context())
    assert [state.partition for state in header.header.partitions] == [block.series.partition] == [0]
    ids = np.frombuffer(block.series.series_ids, "<u8").tolist()
    assert ids == sorted(ids)
    first, last = (
        np.frombuffer(data, "<i8").tolist() for data in (block.series.first_seen_ms, block.series.last_seen_ms)
    )
    numbers = {id_of(number): number for number in NUMBERS}
    lengths = np.frombuffer(block.series.label_lengths, "<u4").tolist()
    assert lengths == [len(canonical_of(numbers[one])) for one in ids]
    return {numbers[one]: (low, high) for one, low, high in zip(ids, first, last, strict=True)}


def test_series_of_a_range_before_memory_include_those_of_history(seam: Seam) -> None:
    found = series(seam, start_ms=START_MS, end_ms=END_MS)
    assert found.keys() == set(NUMBERS)
    assert found[FORGOTTEN] == (2**63 - 1, -(2**63))
    assert found[0][1] < END_MS
    assert series(seam, start_ms=START_MS, end_ms=END_MS, matchers=[M]).keys() == {0, FORGOTTEN}


def test_series_of_memory_are_memorys_alone(seam: Seam) -> None:
    assert series(seam).keys() == set(NUMBERS) - {FORGOTTEN}
    assert series(seam, start_ms=seam.coverage_ms, end_ms=END_MS).keys() == set(NUMBERS) - {FORGOTTEN}
    assert seam.history.calls == []


def test_groups_count_the_series_of_both_once(seam: Seam) -> None:
    request = reader_pb2.SeriesRequest(start_ms=START_MS, end_ms=END_MS, group_by=["__name__", "absent"])
    _, answer = seam.service.Series(request, context())
    assert {tuple(group.values): group.series for group in answer.groups.groups} == {
        ("m_0", ""): 2,
        ("m_1", ""): 2,
        ("m_2", ""): 2,
    }


def test_labels_include_those_of_history_for_a_start_before_memory(seam: Seam) -> None:
    seam.head.index.forget(seam.head.index.all_refs())
    asked = reader_pb2.LabelNamesRequest(start_ms=START_MS)
    assert list(seam.service.LabelNames(asked, context()).names) == ["__name__", "instance", "job"]
    assert list(seam.service.LabelNames(reader_pb2.LabelNamesRequest(), context()).names) == []
    values = reader_pb2.LabelValuesRequest(name="instance", start_ms=START_MS, matchers=[M])
    assert list(seam.service.LabelValues(values, context()).values) == ["i0", "i1"]
    values.ClearField("start_ms")
    assert list(seam.service.LabelValues(values, context()).values) == []


def test_a_store_alone_refuses_labels_from_before_its_memory(seam: Seam) -> None:
    asked = reader_pb2.LabelNamesRequest(start_ms=START_MS)
    with pytest.raises(OutOfCoverage):
        seam.served.service.LabelNames(asked, context())
    asked.start_ms = seam.coverage_ms
    assert seam.served.service.LabelNames(asked, context()).names


def test_history_that_does_not_meet_memory_is_refused_for_series_too(seam: Seam) -> None:
    seam.history.load("topic", 0, seam.since - 1, seam.emitted_ms)
    for call in (
        lambda: series(seam, start_ms=START_MS, end_ms=END_MS),
        lambda: seam.service.LabelNames(reader_pb2.LabelNamesRequest(start_ms=START_MS), context()),
    ):
        with pytest.raises(Unavailable) as caught:
            call()
        assert caught.value.reason == "history_behind"
    # An index needs no window: announcements below a position are loaded with it.
    seam.history.load("topic", 0, seam.since, -(1 << 40))
    assert series(seam, start_ms=START_MS, end_ms=END_MS).keys() == set(NUMBERS)


def test_a_hole_is_refused_for_series_too_unless_allowed(seam: Seam) -> None:
    seam.history.add_hole(0, START_MS, START_MS + WINDOW_MS)
    with pytest.raises(HoleInRange):
        series(seam, start_ms=START_MS, end_ms=END_MS)
    allowed = reader_pb2.ReadOptions(allow_holes=True)
    assert series(seam, start_ms=START_MS, end_ms=END_MS, options=allowed).keys() == set(NUMBERS)
    assert series(seam, start_ms=START_MS + WINDOW_MS, end_ms=END_MS).keys() == set(NUMBERS)


def test_coverage_states_how_far_history_reaches(seam: Seam) -> None:
    (found,) = seam.service.Coverage(reader_pb2.CoverageRequest(), context()).history
    assert (found.partition, found.topic_id, found.position) == (0, "topic", seam.since)
    assert (found.emitted_through_ms, found.reaches_memory) == (seam.emitted_ms, True)
    seam.history.load("topic", 0, seam.since - 1, seam.emitted_ms)
    (found,) = seam.service.Coverage(reader_pb2.CoverageRequest(), context()).history
    assert not found.reaches_memory
