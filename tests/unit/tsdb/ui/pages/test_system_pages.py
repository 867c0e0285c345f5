"""The pages about the system, as HTML: states that need somebody are marked and named with the next step."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from support.api.ui_server import UiServer, ui_server
from tsdb.api.prometheus.call import ApiOptions
from tsdb.model.lag import LAG_UNKNOWN
from tsdb.query.promql.slow import KEPT, SlowQueries, SlowQuery
from tsdb.ui.pages.system import pipeline
from tsdb.ui.pages.system.grid import duration, size, time, visible
from tsdb.ui.pages.system.partitions import NEXT, OTHER_NEXT
from tsdb.v1 import common_pb2, reader_pb2

HOSTILE = "<script>alert(1)</script>\x00\u202e"
READY = common_pb2.PartitionState(
    partition=0, ready=True, from_start=True, next_offset=90, high_watermark=90, series=3, samples=1_000, bytes=2_048
)
SLOW = SlowQuery(1_000, f'sum({{a="{HOSTILE}"}})', "range", 12.5, 0.25, 3.0, 7, 4_000)


def body(server: UiServer, page: str) -> str:
    got = server.get(f"/ui/{page}")
    assert got.status == 200, got.body
    return got.body.decode()


def cells(text: str) -> list[str]:
    """Texts of all cells."""
    inner = (re.sub(r"<[^>]*>", "", one) for one in re.findall(r"<td[^>]*>(.*?)</td>", text, re.DOTALL))
    return [" ".join(html.unescape(one).split()) for one in inner]


def test_a_ready_partition_has_its_numbers_and_no_warning() -> None:
    with ui_server(states=[READY]) as server:
        text = body(server, "partitions")
    assert "1 of 1 partitions are ready." in text
    expected = ["0", "ready", "90 of 90", "none", "the beginning", "–", "3", "1,000", "2 KiB", "2 B", "0"]
    assert cells(text) == expected
    assert "bad" not in text.split("<main", 1)[1]


@pytest.mark.parametrize(
    ("reason", "next_step"),
    [("replaying", NEXT["replaying"]), ("unknown_version", OTHER_NEXT), (HOSTILE, OTHER_NEXT)],
)
def test_a_partition_that_is_not_ready_names_the_reason_and_the_next_step(reason: str, next_step: str) -> None:
    state = common_pb2.PartitionState(
        partition=0, reason=reason, since_offset=100, next_offset=150, high_watermark=200, lag_records=50, lag_ms=61_000
    )
    with ui_server(states=[state]) as server:
        text = body(server, "partitions")
    assert "0 of 1 partitions are ready." in text
    assert cells(text)[1] == f"⚠ not ready: {visible(reason)}. {next_step}"
    assert cells(text)[3] == "⚠ 50, 1.02 min"
    assert 'value="0.5000"' in text
    assert "<script>alert" not in text


@pytest.mark.parametrize(
    ("records", "ms", "shown"),
    [
        (LAG_UNKNOWN, LAG_UNKNOWN, "⚠ unknown"),
        (LAG_UNKNOWN, 61_000, "⚠ unknown, 1.02 min"),
        (50, LAG_UNKNOWN, "⚠ 50, unknown"),
    ],
)
def test_a_lag_that_is_not_known_is_not_0(records: int, ms: int, shown: str) -> None:
    state = common_pb2.PartitionState(partition=0, reason="high_watermark_old", lag_records=records, lag_ms=ms)
    with ui_server(states=[state]) as server:
        assert cells(body(server, "partitions"))[3] == shown


def test_a_partition_without_a_store_has_a_row() -> None:
    with ui_server(states=[READY]) as server:
        server.states.clear()
        text = body(server, "partitions")
    assert cells(text)[1] == f"⚠ not ready: no_store. {NEXT['no_store']}"


def test_holes_have_a_table() -> None:
    state = common_pb2.PartitionState(ready=True)
    state.holes.add(partition=0, start_ms=0, end_ms=1_500, reason="corrupt_record", record_offset=7)
    with ui_server(states=[state]) as server:
        text = body(server, "partitions")
    assert cells(text)[-5:] == ["0", "1970-01-01 00:00:00", "1970-01-01 00:00:01.500", "corrupt_record", "7"]


def test_a_gap_to_history_and_an_idle_stage_are_marked() -> None:
    found = reader_pb2.CoverageResponse(chunk_stage=reader_pb2.ChunkStageState(windows_overdue=2))
    found.partitions.add(partition=0, coverage_start_ms=60_000, since_offset=9)
    found.history.add(partition=0, emitted_through_ms=30_000, position=4)
    stage, loaded = pipeline.grids(found)
    assert [cell.is_bad for cell in stage.rows[0]] == [True, False, False, True, False, False, False]
    assert [cell.text for cell in loaded.rows[0]][2:5] == ["-30 s", "4", "9"]
    assert [cell.is_bad for cell in loaded.rows[0]] == [False, False, True, False, False, True]


def test_the_pipeline_has_a_sentence_for_each_part() -> None:
    stage = reader_pb2.ChunkStageState(engines=["python"], members=1, emitted_through_ms=60_000)
    found = reader_pb2.CoverageResponse(chunk_stage=stage)
    found.partitions.add(partition=0, coverage_start_ms=30_000, since_offset=9)
    found.history.add(partition=0, emitted_through_ms=60_000, position=9, reaches_memory=True)
    assert [(one.text, one.is_bad) for one in pipeline.words(found)] == [
        ("Memory has the samples since 1970-01-01 00:00:30 UTC, in 1 partition.", False),
        ("Chunk stage (python) has emitted what ends by 1970-01-01 00:01:00 UTC; nothing is overdue.", False),
        (
            "History has all samples before 1970-01-01 00:01:00 UTC; together with memory it answers any range.",
            False,
        ),
    ]


@pytest.mark.parametrize(
    ("found", "bad"),
    [
        (reader_pb2.CoverageResponse(), ["Memory: no store answers"]),
        (
            reader_pb2.CoverageResponse(
                partitions=[common_pb2.PartitionState(partition=0, from_start=True)],
                chunk_stage=reader_pb2.ChunkStageState(),
            ),
            ["Chunk stage: nobody runs it"],
        ),
        (
            reader_pb2.CoverageResponse(
                partitions=[common_pb2.PartitionState(partition=0, from_start=True)],
                chunk_stage=reader_pb2.ChunkStageState(engines=["spark"], windows_overdue=2),
                history=[reader_pb2.HistoryState(partition=0, emitted_through_ms=30_000)],
            ),
            ["Chunk stage (spark) has not emitted", "History has all samples before 1970-01-01 00:00:30 UTC. It does"],
        ),
    ],
)
def test_a_sentence_of_the_pipeline_that_is_not_well_is_marked(
    found: reader_pb2.CoverageResponse, bad: list[str]
) -> None:
    marked = [one.text for one in pipeline.words(found) if one.is_bad]
    assert [text.startswith(start) for text, start in zip(marked, bad, strict=True)] == [True] * len(bad)


def test_without_history_the_pipeline_says_so() -> None:
    with ui_server(has_history=False) as server:
        assert "There is no history" in body(server, "pipeline")


def test_slow_queries_are_shown_as_text() -> None:
    with ui_server() as server:
        server.api.api.running.slow.add(SLOW)
        text = body(server, "queries")
    assert cells(text) == [
        f'sum({{a="{visible(HOSTILE)}"}})',
        *("range", "1970-01-01 00:00:01", "12.5 s", "250 ms", "3 s", "7", "4,000"),
    ]
    assert "No query runs now." in text


def test_the_newest_slow_queries_are_kept() -> None:
    queries = SlowQueries()
    for number in range(KEPT + 5):
        queries.add(replace(SLOW, ended_ms=number))
    assert [query.ended_ms for query in queries.all()] == list(range(KEPT + 4, 4, -1))


def test_a_slow_query_of_the_api_is_kept() -> None:
    with ui_server(api_options=ApiOptions(slow_s=0.0)) as server:
        server.api.get("query", query="1 + 1")
        (kept,) = server.api.api.running.slow.all()
    assert (kept.text, kept.kind, kept.samples) == ("1 + 1", "instant", 0)
    assert kept.seconds >= kept.queue_s >= 0


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"by": "size", "ago": "1h"}, "is none of"),
        ({"by": "pair", "ago": "1h"}, "growth is known by metric, label, source"),
        ({"by": "metric", "ago": "2y"}, "must be one of 10m, 1h, 6h, 1d"),
    ],
)
def test_growth_of_other_kinds_is_refused(parameters: dict[str, str], problem: str) -> None:
    with ui_server() as server:
        got = server.ask("/ui/growth", **parameters)
    assert got.status == 400
    assert problem in got.json["error"]


@pytest.mark.parametrize("number", ["", "x", "9" * 30])
def test_a_cancel_without_a_number_is_refused(number: str) -> None:
    with ui_server() as server:
        assert server.ask("/ui/cancel", number=number).status == 400


def test_a_cancel_of_an_ended_query_finds_none() -> None:
    with ui_server() as server:
        assert server.ask("/ui/cancel", number="4711").json == {"status": "success", "found": False}


def test_texts_are_short_and_visible() -> None:
    assert visible("a\x00b\nc\u202ed") == "a␀b␊c\\u202ed"
    assert visible("x" * 1_000, 10) == "xxxxxxxxxx… (1,000 characters)"
    assert visible("\udcff") == "\ufffd"
    assert (duration(850), duration(90_000), duration(-7_200_000)) == ("850 ms", "1.5 min", "-2 h")
    assert (size(0), size(1_536), size(5 << 40)) == ("0 B", "1.5 KiB", "5.0 TiB")
    assert (time(None), time(0)) == ("–", "1970-01-01 00:00:00")
