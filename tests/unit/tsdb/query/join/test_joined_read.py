"""Reads over the seam of memory and history: their requests to stores, refusals, headers and trailers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from support.data.heads import bits, canonical_of, id_of
from support.servers.queriers import Context, context, messages, select
from support.servers.seams import END_MS, NUMBERS, START_MS, STEP_MS, WINDOW_MS, Seam
from tsdb.answer.answer import Answer
from tsdb.answer.spec import SelectSpec
from tsdb.client import ReadOptions, SelectQuery, SelectResult
from tsdb.codec.chunk.key import ChunkKey
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.head.state import Hole
from tsdb.history.interface import HistoryHole, Loaded
from tsdb.model.errors import CorruptData, HoleInRange, InvalidRequest, Overloaded, TsdbError, Unavailable
from tsdb.query.join.partition_join import ORDERED_SAMPLE_BYTES
from tsdb.reader.read_call import AnswerBytes, Caller, ReadCalls, SelectLimits
from tsdb.v1 import reader_pb2

SELECTOR = '{job="test"}'
EVERYTHING = SelectQuery(SELECTOR, START_MS, END_MS)


def answered(result: SelectResult) -> dict[int, dict[int, float]]:
    numbers = {canonical_of(number): number for number in NUMBERS}
    return {
        numbers[one.canonical]: dict(zip(one.ts_ms.tolist(), one.values.tolist(), strict=True)) for one in result.series
    }


@pytest.fixture
def seam() -> Seam:
    return Seam()


def test_an_answer_spans_memory_and_history(seam: Seam) -> None:
    assert START_MS < seam.coverage_ms < END_MS
    result = select(seam.service, EVERYTHING)
    assert bits(answered(result)) == bits(seam.twin.samples(NUMBERS, START_MS, END_MS))


def test_memory_that_reaches_is_not_joined_with_anything(seam: Seam) -> None:
    result = select(seam.service, SelectQuery(SELECTOR, seam.coverage_ms, END_MS))
    assert bits(answered(result)) == bits(seam.twin.samples(NUMBERS, seam.coverage_ms, END_MS))
    assert seam.history.calls == []


def test_the_loaded_positions_are_read_before_any_chunk(seam: Seam) -> None:
    select(seam.service, EVERYTHING)
    assert seam.history.calls.index("loaded") < seam.history.calls.index("read")
    assert seam.history.calls.count("loaded") == 1


@pytest.mark.parametrize("late_ms", [STEP_MS // 2, 3 * WINDOW_MS, 9 * WINDOW_MS])
def test_a_late_sample_is_in_the_next_read_whether_it_is_new_or_takes_the_place_of_another(late_ms: int) -> None:
    new, same = END_MS - WINDOW_MS - late_ms + 1, END_MS - WINDOW_MS - late_ms // STEP_MS * STEP_MS
    seam = Seam(late=[(1, new, 77.0), (2, same, 78.0), (2, same, 79.0)])
    got = answered(select(seam.service, EVERYTHING))
    assert (got[1][new], got[2][same]) == (77.0, 79.0)
    assert bits(got) == bits(seam.twin.samples(NUMBERS, START_MS, END_MS))


def test_series_known_by_id_are_found_in_history_too(seam: Seam) -> None:
    ids = [id_of(4), id_of(1), 12345]
    result = select(seam.service, SelectQuery(None, START_MS, END_MS, series_ids=ids))
    assert bits(answered(result)) == bits(seam.twin.samples([1, 4], START_MS, END_MS))


def test_series_that_memory_never_knew_are_answered_from_history(seam: Seam) -> None:
    forgotten = Seam()
    forgotten.head.index.forget(forgotten.head.index.refs_of(np.array([id_of(3)], np.uint64)))
    before = SelectQuery(None, START_MS, START_MS + WINDOW_MS, series_ids=[id_of(3)])
    assert bits(answered(select(forgotten.service, before))) == bits(
        seam.twin.samples([3], START_MS, START_MS + WINDOW_MS)
    )


def test_labels_are_left_out_on_request(seam: Seam) -> None:
    result = select(seam.service, SelectQuery(SELECTOR, START_MS, END_MS, labels=False))
    assert set(result.canonical) == {b""}
    assert sorted(result.series_ids.tolist()) == sorted(id_of(number) for number in NUMBERS)


def test_whole_steps_above_coverage_are_requested_from_the_store_as_steps(seam: Seam) -> None:
    asked: list[Any] = []
    store = seam.served.store
    real = store.select

    def noting(spec: SelectSpec, caller: Caller) -> Iterator[Answer]:
        asked.append((spec.start_ms, spec.end_ms, spec.step_ms, spec.partial))
        return real(spec, caller)

    store.select = noting  # type: ignore[method-assign]  # notes the requests to the store
    step_ms = 130
    query = SelectQuery(SELECTOR, START_MS, END_MS, step_ms=step_ms, agg="sum")
    got = answered(select(seam.service, query))
    assert bits(got) == bits(seam.twin.steps(NUMBERS, START_MS, END_MS, step_ms, 5))
    first = START_MS + -(-(seam.coverage_ms - START_MS) // step_ms) * step_ms
    assert asked == [(START_MS, first, 0, True), (first, END_MS, step_ms, False)]


def test_the_trailer_counts_the_frames_of_both(seam: Seam) -> None:
    frames = list(messages(seam.service, EVERYTHING))
    assert [frame.HasField("header") for frame in frames] == [True] + [False] * (len(frames) - 1)
    samples = sum(len(raw.ts_ms) // 8 for frame in frames for raw in frame.raw)
    trailer = frames[-1].trailer
    assert (trailer.series, trailer.samples) == (len(NUMBERS), samples)
    assert trailer.bytes == 16 * samples + 4 * len(NUMBERS)


def test_columns_are_answered_as_an_overlay(seam: Seam) -> None:
    query = SelectQuery(SELECTOR, START_MS, END_MS, encoding="columns")
    assert all(raw.overlay for frame in messages(seam.service, query) for raw in frame.raw)
    assert bits(answered(select(seam.service, query))) == bits(seam.twin.samples(NUMBERS, START_MS, END_MS))


def test_the_header_states_the_range_in_memory(seam: Seam) -> None:
    (state,) = select(seam.service, EVERYTHING).partitions
    assert (state.coverage_start_ms, state.since_offset) == (seam.coverage_ms, seam.since)
    assert state.applied_offset == seam.head.applied_offset
    assert list(state.holes) == []


BEHIND: dict[str, Callable[[Seam], Loaded | None]] = {
    "nothing loaded": lambda seam: None,
    "another log": lambda seam: Loaded("other", 0, seam.since, seam.emitted_ms),
    "position": lambda seam: Loaded("topic", 0, seam.since - 1, seam.emitted_ms),
    "window": lambda seam: Loaded("topic", 0, seam.since, seam.emitted_ms - WINDOW_MS),
}


@pytest.mark.parametrize("case", BEHIND)
def test_history_that_does_not_reach_memory_is_unavailable_and_no_chunk_is_read(seam: Seam, case: str) -> None:
    loaded = BEHIND[case](seam)
    seam.history.loaded_by = {} if loaded is None else {0: loaded}
    with pytest.raises(Unavailable) as caught:
        select(seam.service, EVERYTHING)
    assert (caught.value.reason, caught.value.metadata["partition"]) == ("history_behind", "0")
    assert "read" not in seam.history.calls
    # Ranges in memory, or before the last loaded window, are answered anyway.
    select(seam.service, SelectQuery(SELECTOR, seam.coverage_ms, END_MS))
    if case == "window":
        select(seam.service, SelectQuery(SELECTOR, START_MS, START_MS + WINDOW_MS))


def test_history_that_does_not_answer_is_unavailable(seam: Seam) -> None:
    seam.history.fail = [Unavailable("no node answers", reason="history_away", retry_after_s=1.0)]
    with pytest.raises(Unavailable, match="no node answers"):
        select(seam.service, EVERYTHING)
    select(seam.service, SelectQuery(SELECTOR, seam.coverage_ms, END_MS))


def chunk_keys(seam: Seam) -> list[ChunkKey]:
    return sorted(seam.history.rows, key=lambda key: (key.pack_id, key.window_start_ms))


def test_a_chunk_that_does_not_decode_is_data_loss_and_allow_holes_lists_it(seam: Seam) -> None:
    broken = next(key for key in chunk_keys(seam) if key.window_start_ms == START_MS)
    seam.history.rows[broken] = seam.history.rows[broken][:-1] + b"\0"
    with pytest.raises(CorruptData) as caught:
        select(seam.service, EVERYTHING)
    assert caught.value.reason == "corrupt_chunk"
    assert caught.value.metadata["pack_id"] == f"{broken.pack_id:016x}"
    assert caught.value.metadata["window_start_ms"] == str(START_MS)
    result = select(seam.service, SelectQuery(SELECTOR, START_MS, END_MS, options=ReadOptions(allow_holes=True)))
    ((hole,),) = (state.holes for state in result.partitions)
    assert (hole.pack_id, hole.start_ms, hole.end_ms) == (broken.pack_id, START_MS, START_MS + WINDOW_MS)
    assert hole.reason == "corrupt_chunk"
    whole = seam.twin.samples(NUMBERS, START_MS, END_MS)
    assert sum(map(len, whole.values())) - result.samples == WINDOW_MS // STEP_MS


def test_a_chunk_under_the_key_of_another_is_data_loss(seam: Seam) -> None:
    one, other = chunk_keys(seam)[:2]
    seam.history.rows[one] = seam.history.rows[other]
    with pytest.raises(CorruptData, match="not of its key's pack"):
        select(seam.service, EVERYTHING)


HOLE = (START_MS + 3 * WINDOW_MS, START_MS + 4 * WINDOW_MS)


def test_a_hole_of_history_is_data_loss_for_reads_that_touch_it(seam: Seam) -> None:
    seam.history.add_hole(0, *HOLE)
    with pytest.raises(HoleInRange) as caught:
        select(seam.service, EVERYTHING)
    assert caught.value.metadata["hole_start_ms"] == str(HOLE[0])
    for span in ((START_MS, HOLE[0]), (HOLE[1], END_MS)):
        assert select(seam.service, SelectQuery(SELECTOR, *span)).samples
    allowed = select(seam.service, SelectQuery(SELECTOR, START_MS, END_MS, options=ReadOptions(allow_holes=True)))
    ((listed,),) = (state.holes for state in allowed.partitions)
    assert (listed.start_ms, listed.end_ms, listed.reason) == (*HOLE, "corrupt_record")
    assert bits(answered(allowed)) == bits(seam.twin.samples(NUMBERS, START_MS, END_MS))


def test_an_accepted_hole_is_ignored(seam: Seam) -> None:
    seam.history.add_hole(0, *HOLE, accepted=True)
    result = select(seam.service, EVERYTHING)
    assert [list(state.holes) for state in result.partitions] == [[]]


def test_a_hole_of_one_pack_is_ignored_by_reads_of_others(seam: Seam) -> None:
    packs = {row[2]: row[0] for rows in seam.history.announced.values() for row in rows.values()}
    seam.history.add_hole(0, *HOLE, pack_id=packs[canonical_of(1)])
    assert select(seam.service, SelectQuery("m_2", START_MS, END_MS)).samples
    with pytest.raises(HoleInRange, match="pack"):
        select(seam.service, SelectQuery("m_1", START_MS, END_MS))


def test_a_hole_that_memory_covers_is_ignored(seam: Seam) -> None:
    seam.history.add_hole(0, seam.coverage_ms, END_MS)
    assert select(seam.service, EVERYTHING).samples


OVER: dict[str, tuple[SelectLimits, str]] = {
    "series": (SelectLimits(series_max=5), "series_limit"),
    "samples": (SelectLimits(samples_max=400), "samples_limit"),
    "bytes": (SelectLimits(bytes_max=6000), "bytes_limit"),
}


@pytest.mark.parametrize("case", OVER)
def test_the_limits_hold_for_memory_and_history_together(case: str) -> None:
    limits, reason = OVER[case]
    with pytest.raises(Overloaded) as caught:
        select(Seam(limits=limits).service, EVERYTHING)
    assert caught.value.reason == reason
    assert int(caught.value.metadata["asked"]) > int(caught.value.metadata["limit"])


@pytest.mark.parametrize("allow_holes", [False, True])
def test_the_memory_of_a_joined_answer_is_reserved_until_it_is_sent(*, allow_holes: bool) -> None:
    samples = len(NUMBERS) * (END_MS - START_MS) // STEP_MS
    # A read has 2.3 of the 8 bytes.
    answers = AnswerBytes(8 * ORDERED_SAMPLE_BYTES * samples, wait_s=0.0, small_bytes=0)
    seam = Seam(calls=ReadCalls(60.0, answers))
    query = SelectQuery(SELECTOR, START_MS, END_MS, options=ReadOptions(allow_holes=allow_holes))
    unread = messages(seam.service, query)
    next(unread)
    with pytest.raises(Overloaded) as caught:
        select(seam.service, query)
    assert caught.value.reason == "answers_bytes"
    unread.close()  # type: ignore[attr-defined]  # a generator
    assert bits(answered(select(seam.service, query))) == bits(seam.twin.samples(NUMBERS, START_MS, END_MS))


def test_an_answer_of_history_that_is_too_large_is_refused_by_name() -> None:
    answers = AnswerBytes(10_000, wait_s=0.0, small_bytes=0)
    with pytest.raises(Overloaded, match="half of answers_bytes_max: ask for a shorter range"):
        select(Seam(calls=ReadCalls(60.0, answers)).service, EVERYTHING)


def test_a_caller_that_left_ends_the_read(seam: Seam) -> None:
    with pytest.raises(Unavailable, match="no longer waits"):
        select(seam.service, EVERYTHING, context(remaining_s=0.0))
    gone: Any = Context()
    gone.leave()
    with pytest.raises(Unavailable, match="no longer waits"):
        select(seam.service, EVERYTHING, gone)


def test_a_partial_answer_is_memory_alone(seam: Seam) -> None:
    result = select(seam.service, SelectQuery(SELECTOR, START_MS, END_MS, partial=True))
    assert result.orders is not None
    assert result.ts_ms.min() > START_MS
    assert seam.history.calls == []


BAD: dict[str, tuple[SelectQuery, type[TsdbError], str]] = {
    "selects everything": (SelectQuery('{a!="b"}', 1, 2), InvalidRequest, "selector_too_broad"),
    "range reversed": (SelectQuery(SELECTOR, 2, 1), InvalidRequest, "bad_range"),
    "range of centuries": (SelectQuery(SELECTOR, -(1 << 50), END_MS), Overloaded, "epochs_limit"),
    "unknown partition": (
        SelectQuery(SELECTOR, 1, 2, options=ReadOptions(partitions=[1])),
        InvalidRequest,
        "bad_partition",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_requests_are_refused(seam: Seam, case: str) -> None:
    query, kind, reason = BAD[case]
    with pytest.raises(kind) as caught:
        select(seam.service, query)
    assert caught.value.reason == reason


def add_hole_of_memory(seam: Seam) -> tuple[int, int]:
    """A corrupt record at the end of the log, as a head finds it: it may have touched anything."""
    holes = seam.head.contents.holes
    hole = Hole(START_MS, END_MS + 1, "corrupt_record", seam.head.next_offset)
    holes.add([hole])
    return hole.start_ms, hole.end_ms


@pytest.mark.parametrize("start_ms", [START_MS, END_MS - WINDOW_MS], ids=["joined", "memory alone"])
def test_a_hole_of_memory_refuses_until_it_is_accepted_in_history(seam: Seam, start_ms: int) -> None:
    span = add_hole_of_memory(seam)
    query = SelectQuery(SELECTOR, start_ms, END_MS)
    found = HoleRecord(0, 0, *span, "corrupt_record", seam.head.next_offset)
    for known in ([], [HistoryHole(found, False)], [HistoryHole(dataclasses.replace(found, record_offset=1), True)]):
        seam.history.hole_list = known
        with pytest.raises(HoleInRange):
            select(seam.service, query)
    seam.history.hole_list = [HistoryHole(found, True)]
    result = select(seam.service, query)
    assert bits(answered(result)) == bits(seam.twin.samples(NUMBERS, start_ms, END_MS))
    assert [len(state.holes) for state in result.partitions] == [1], "it is still named"
    series = reader_pb2.SeriesRequest(start_ms=start_ms, end_ms=END_MS)
    assert len(list(seam.service.Series(series, context()))) == 2
