"""The seam watch shows how far history reaches beyond the start of memory, without a read across the seam."""

from __future__ import annotations

import pytest

from support.counters import sample
from support.data.heads import new_head
from support.fakes.fake_history import FakeHistory
from support.servers.queriers import TOPIC_ID, ServedHeads, one_store, sources_over
from support.servers.seams import WINDOW_MS, Seam
from tsdb.model.errors import Unavailable
from tsdb.ops.metrics import registry
from tsdb.query.seam_watch import SeamWatch


@pytest.fixture(scope="module")
def seam() -> Seam:
    return Seam()


def look(seam: Seam, emitted_ms: int, position: int) -> None:
    """A look at a history that is loaded this far."""
    assert seam.sources.history is not None
    seam.history.load(TOPIC_ID, 0, position, emitted_ms)
    SeamWatch(seam.sources, seam.sources.history).look()


def test_the_margin_is_what_history_has_after_the_start_of_memory(seam: Seam) -> None:
    look(seam, seam.coverage_ms + WINDOW_MS, seam.since)
    assert sample("tsdb_query_seam_margin_seconds", partition="0") == WINDOW_MS / 1000
    assert sample("tsdb_query_seam_joined", partition="0") == 1
    loaded_s = (seam.coverage_ms + WINDOW_MS) / 1000
    assert sample("tsdb_query_history_loaded_through_timestamp_seconds", partition="0") == loaded_s


def test_a_history_that_ends_before_memory_has_a_negative_margin(seam: Seam) -> None:
    look(seam, seam.coverage_ms - 1000, seam.since)
    assert sample("tsdb_query_seam_margin_seconds", partition="0") == -1
    assert sample("tsdb_query_seam_joined", partition="0") == 0


def test_a_position_before_memory_is_not_joined_whatever_the_margin(seam: Seam) -> None:
    look(seam, seam.coverage_ms + WINDOW_MS, seam.since - 1)
    assert sample("tsdb_query_seam_joined", partition="0") == 0


def test_a_history_that_is_away_is_counted_and_the_values_stay(seam: Seam) -> None:
    look(seam, seam.coverage_ms + WINDOW_MS, seam.since)
    before = sample("tsdb_query_seam_look_failures_total", reason="store_unavailable")
    seam.history.fail = [Unavailable("no node answers", reason="store_unavailable")]
    look(seam, seam.coverage_ms - 1000, seam.since)
    assert sample("tsdb_query_seam_look_failures_total", reason="store_unavailable") == before + 1
    assert sample("tsdb_query_seam_joined", partition="0") == 1


def test_memory_that_has_the_whole_log_has_no_margin() -> None:
    served = ServedHeads({0: new_head(0, from_start=True)})
    served.catch_up()
    history = FakeHistory()
    history.load(TOPIC_ID, 0, 0, 0)
    sources = sources_over(one_store(served), history, window_ms=WINDOW_MS, partitions=1)
    assert sources.history is not None
    SeamWatch(sources, sources.history).look()
    assert registry.get_sample_value("tsdb_query_seam_margin_seconds", {"partition": "0"}) is None
    assert sample("tsdb_query_seam_joined", partition="0") == 1
