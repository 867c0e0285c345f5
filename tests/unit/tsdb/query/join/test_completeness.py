"""Memory and history together hold a range, or the refusal names the partition and the four numbers."""

from __future__ import annotations

import pytest

from support.fakes.fake_stores import state
from tsdb.history.interface import Loaded
from tsdb.model.errors import Unavailable
from tsdb.query.join.completeness import check_complete, check_series_complete, seam_ms

MEMORY = state(3, coverage_ms=5000, since=100)


def loaded(position: int, emitted_ms: int, topic_id: str = "topic") -> dict[int, Loaded]:
    return {3: Loaded(topic_id, 3, position, emitted_ms)}


@pytest.mark.parametrize(
    ("position", "emitted_ms", "end_ms"),
    [(100, 5000, 9000), (101, 8000, 9000), (100, 4000, 4000), (1 << 40, 5000, 5001)],
)
def test_history_that_meets_memory_and_reaches_the_seam_is_enough(position: int, emitted_ms: int, end_ms: int) -> None:
    check_complete(MEMORY, loaded(position, emitted_ms), seam_ms(MEMORY, end_ms))


@pytest.mark.parametrize(
    ("position", "emitted_ms", "end_ms"), [(99, 9000, 9000), (100, 4999, 9000), (100, 3999, 4000), (0, 0, 1)]
)
def test_a_gap_between_them_is_refused_with_all_numbers(position: int, emitted_ms: int, end_ms: int) -> None:
    with pytest.raises(Unavailable) as caught:
        check_complete(MEMORY, loaded(position, emitted_ms), seam_ms(MEMORY, end_ms))
    error = caught.value
    assert (error.reason, error.retry_after_s) == ("history_behind", 1.0)
    assert error.metadata == {
        "partition": "3",
        "loaded_position": str(position),
        "since_offset": "100",
        "emitted_through_ms": str(emitted_ms),
        "needed_through_ms": str(min(5000, end_ms)),
    }
    for named in ("partition 3", f"offset {position}", "offset 100", f"{emitted_ms} ms", f"{min(5000, end_ms)} ms"):
        assert named in error.message


@pytest.mark.parametrize("what", [{}, loaded(1 << 40, 1 << 40, "another log")])
def test_nothing_loaded_of_this_log_is_a_gap(what: dict[int, Loaded]) -> None:
    with pytest.raises(Unavailable, match="loaded up to offset none"):
        check_complete(MEMORY, what, 10)


def test_series_need_no_emitted_window() -> None:
    check_series_complete(MEMORY, loaded(100, -(1 << 40)))
    with pytest.raises(Unavailable, match="history of partition 3"):
        check_series_complete(MEMORY, loaded(99, 1 << 40))


def test_memory_reaches_from_coverage_on_or_from_the_start_of_the_log() -> None:
    assert MEMORY.reaches(5000)
    assert not MEMORY.reaches(4999)
    assert state(coverage_ms=5000, from_start=True).reaches(-(1 << 60))
    assert (seam_ms(MEMORY, 9000), seam_ms(MEMORY, 4000)) == (5000, 4000)
