"""Resume: the start of the chunk stage case by case, and the trimmed logs that it refuses."""

from __future__ import annotations

import pytest

from support.data.heads import SMALL_TIMES as TIMES
from tsdb.chunks.progress import Progress
from tsdb.chunks.resume import (
    LogFacts,
    check_gap,
    first_progress,
    gap_hole,
    progress_after_gap,
    required_ms,
    seek_offset,
)
from tsdb.model.errors import LostOffsets
from tsdb.model.window import LONG_AGO_MS

# Windows of 400 ms, grace 5, ahead 15, accept_past 100,000.
AT = Progress(position=50, emitted_through_ms=4_000)


@pytest.mark.parametrize(
    ("first_broker_ms", "emitted_through_ms"), [(4_000, 3_600), (4_004, 3_600), (4_005, 4_000), (4_399, 4_000)]
)
def test_a_first_start_counts_windows_closed_before_its_first_record_as_emitted(
    first_broker_ms: int, emitted_through_ms: int
) -> None:
    assert first_progress(0, first_broker_ms, 3, TIMES) == (Progress(0, emitted_through_ms), None)


@pytest.mark.parametrize(("first_broker_ms", "whole_from_ms"), [(4_000, 4_400), (3_970, 4_000), (3_971, 4_400)])
def test_a_first_start_on_a_trimmed_log_is_a_hole_up_to_the_first_whole_window(
    first_broker_ms: int, whole_from_ms: int
) -> None:
    progress, hole = first_progress(70, first_broker_ms, 3, TIMES)
    assert hole is not None
    assert (progress.position, progress.whole_from_ms) == (70, whole_from_ms)
    assert (hole.partition, hole.start_ms, hole.end_ms, hole.record_offset) == (3, LONG_AGO_MS, whole_from_ms, 70)


def test_it_reads_from_the_sooner_of_position_and_first_record_that_may_matter() -> None:
    assert required_ms(AT, TIMES) == 3_985
    assert required_ms(Progress(50, 4_000, whole_from_ms=4_800), TIMES) == 4_785
    assert seek_offset(AT, LogFacts(0, 99, 0, 40)) == 40
    assert seek_offset(AT, LogFacts(0, 99, 0, 60)) == 50
    assert seek_offset(AT, LogFacts(0, 99, 0, None)) == 50


@pytest.mark.parametrize(
    "facts",
    [
        LogFacts(0, 99, 3_000, 0),  # The log was never trimmed.
        LogFacts(30, 99, 3_900, 40),  # The lookup found a record past the first.
        LogFacts(50, 99, 3_900, 51),
        LogFacts(50, 99, 3_900, None),
        LogFacts(12, 99, 3_970, 13),  # The low watermark lies in a gap; 3,970 + 2 x 15 is where the window starts.
        LogFacts(13, 99, 3_970, 13),
    ],
)
def test_a_log_with_all_needed_records_is_no_gap(facts: LogFacts) -> None:
    assert check_gap(AT, facts, 3, TIMES) is None


@pytest.mark.parametrize(
    ("facts", "end_ms"),
    [
        (LogFacts(40, 99, 3_980, 44), 4_010),
        (LogFacts(40, 99, 3_980, None), 4_010),
        (LogFacts(40, 99, 3_984, 41), 4_014),
        (LogFacts(50, 99, 3_971, 51), 4_001),
    ],
)
def test_a_log_that_begins_just_before_the_lookup_is_no_gap_and_names_what_a_step_back_may_have_lost(
    facts: LogFacts, end_ms: int
) -> None:
    hole = check_gap(AT, facts, 3, TIMES)
    assert hole is not None
    assert (hole.partition, hole.pack_id, hole.start_ms, hole.end_ms) == (3, 0, 4_000, end_ms)
    assert (hole.reason, hole.record_offset) == ("trimmed_near", facts.low)


@pytest.mark.parametrize(
    ("facts", "start_ms", "end_ms"),
    [
        (LogFacts(51, 99, 3_900, 60), 4_000 - 100_000, 4_000),  # The position is gone: late samples of any age.
        (LogFacts(40, 99, 3_990, 40), 4_000, 4_400),  # A trimmed record before the first may have held samples.
        (LogFacts(12, 99, 3_990, 13), 4_000, 4_400),  # The same where the low watermark lies in a gap of offsets.
        (LogFacts(40, 99, 3_985, 40), 4_000, 4_400),  # The lookup is the first record: an earlier one may be gone.
        (LogFacts(99, 99, None, None), 4_000 - 100_000, 4_400),  # Everything is gone.
        (LogFacts(50, 50, None, None), 4_000, 4_400),
    ],
)
def test_a_gap_names_the_interval_that_may_be_lost(facts: LogFacts, start_ms: int, end_ms: int) -> None:
    with pytest.raises(LostOffsets) as refused:
        check_gap(AT, facts, 3, TIMES)
    assert refused.value.reason == "chunk_gap"
    assert refused.value.metadata["start_ms"] == str(start_ms)
    assert refused.value.metadata["end_ms"] == str(end_ms)
    assert "--accept-gap" in refused.value.message
    hole = gap_hole(AT, facts, 3, TIMES)
    assert (hole.start_ms, hole.end_ms) == (start_ms, end_ms)


def test_after_an_accepted_gap_nothing_is_refused_again() -> None:
    facts = LogFacts(70, 99, 9_000, 70)
    progress = progress_after_gap(AT, facts, TIMES)
    assert progress == Progress(70, 8_800, 9_200)
    # The first record that may hold unemitted samples is not the first record of the log.
    check_gap(progress, LogFacts(70, 99, 9_000, 80), 3, TIMES)
    check_gap(progress, LogFacts(70, 99, 9_000, None), 3, TIMES)
