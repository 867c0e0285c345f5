"""Samples of a series that no index knows: every read that may have asked for the series is refused, or names the loss.

The hole names the pack of the lost series. No selection can tell whether the series was asked for, because memory and
history select by an index that lacks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.data.heads import canonical_of
from support.fakes.fake_history import PLACEMENT
from support.servers.queriers import context, select
from support.servers.seams import END_MS, START_MS, WINDOW_MS, Seam
from tsdb.client import ReadOptions, SelectQuery
from tsdb.client.query import query, query_range
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.head.state import Hole
from tsdb.history.interface import HistoryHole
from tsdb.model.errors import HoleInRange
from tsdb.v1 import common_pb2, reader_pb2

LOST = 30  # Its series is m_0 of another instance: no index has it.
LOST_PACK = PLACEMENT.place(canonical_of(LOST)).pack_id
KNOWN_PACK = PLACEMENT.place(canonical_of(1)).pack_id
SPAN = (START_MS + 3 * WINDOW_MS, START_MS + 4 * WINDOW_MS)
MATCHER = common_pb2.Matcher(name="instance", value="i10")

Read = Callable[[Seam, int, int, bool], Any]


def _options(*, allow: bool) -> reader_pb2.ReadOptions:
    return reader_pb2.ReadOptions(allow_holes=allow)


def _select(text: str | None, **fields: Any) -> Read:
    def read(seam: Seam, start_ms: int, end_ms: int, allow: bool) -> Any:
        return select(
            seam.service, SelectQuery(text, start_ms, end_ms, options=ReadOptions(allow_holes=allow), **fields)
        )

    return read


def _rpc(method: str, request: Callable[..., Any], **fields: Any) -> Read:
    def read(seam: Seam, start_ms: int, end_ms: int, allow: bool) -> Any:
        asked = request(start_ms=start_ms, end_ms=end_ms, options=_options(allow=allow), **fields)
        answer = getattr(seam.service, method)(asked, context())
        return answer if method.startswith("Label") else list(answer)

    return read


def _promql(seam: Seam, start_ms: int, end_ms: int, allow: bool) -> Any:
    call: Any = query_range('m_0{instance="i10"}', start_ms, end_ms - 1, 100, options=ReadOptions(allow_holes=allow))
    return list(seam.service.Query(call.request, context()))


def _instant(seam: Seam, start_ms: int, end_ms: int, allow: bool) -> Any:
    text = f'count_over_time(m_0{{instance="i10"}}[{end_ms - start_ms}ms])'
    call: Any = query(text, end_ms - 1, options=ReadOptions(allow_holes=allow))
    return list(seam.service.Query(call.request, context()))


READS: dict[str, Read] = {
    "select of its name": _select("m_0"),
    "select of the lost series": _select('m_0{instance="i10"}'),
    "select of another series": _select("m_1"),
    "select by ids": _select(None, series_ids=[12345]),
    "select by steps": _select('m_0{instance="i10"}', step_ms=100, agg="sum"),
    "series": _rpc("Series", reader_pb2.SeriesRequest, matchers=[MATCHER]),
    "groups of series": _rpc("Series", reader_pb2.SeriesRequest, group_by=["__name__"]),
    "label names": _rpc("LabelNames", reader_pb2.LabelNamesRequest),
    "label values": _rpc("LabelValues", reader_pb2.LabelValuesRequest, name="instance"),
    "range query": _promql,
    "instant query": _instant,
}


def lose_in_history(seam: Seam) -> tuple[int, int]:
    hole = HoleRecord(0, LOST_PACK, *SPAN, "unknown_series", 7)
    seam.history.hole_list = [HistoryHole(hole, False)]
    return SPAN


def lose_in_memory(seam: Seam) -> tuple[int, int]:
    """The hole of a head over its whole memory."""
    span = seam.coverage_ms, END_MS
    seam.head.contents.holes.add([Hole(*span, "unknown_series", seam.head.next_offset, LOST_PACK)])
    return span


PLACES = {"history": lose_in_history, "memory": lose_in_memory}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("read", READS)
def test_a_lost_series_refuses_every_read_of_its_time_until_the_loss_is_accepted(read: str, place: str) -> None:
    seam = Seam()
    start_ms, end_ms = PLACES[place](seam)
    with pytest.raises(HoleInRange, match="unknown_series"):
        READS[read](seam, start_ms, end_ms, False)
    READS[read](seam, start_ms, end_ms, True)
    if place == "history":
        READS[read](seam, start_ms - WINDOW_MS, start_ms, False)
        hole = HoleRecord(0, LOST_PACK, start_ms, end_ms, "unknown_series", 7)
    else:
        hole = HoleRecord(0, LOST_PACK, start_ms, end_ms, "unknown_series", seam.head.next_offset)
    seam.history.hole_list = [HistoryHole(hole, True)]
    READS[read](seam, start_ms, end_ms, False)


@pytest.mark.parametrize("read", READS)
def test_a_corrupt_chunk_refuses_only_reads_of_its_pack(read: str) -> None:
    seam = Seam()
    seam.history.hole_list = [HistoryHole(HoleRecord(0, KNOWN_PACK, *SPAN, "corrupt_chunk", 7), False)]
    if read == "select of another series":
        with pytest.raises(HoleInRange, match="pack"):
            READS[read](seam, *SPAN, False)
    else:
        READS[read](seam, *SPAN, False)


@pytest.mark.parametrize("method", ["LabelNames", "LabelValues"])
def test_labels_of_a_corrupt_record_in_memory_are_refused_as_series_are(method: str) -> None:
    seam = Seam()
    seam.head.contents.holes.add([Hole(seam.coverage_ms, END_MS, "corrupt_record", seam.head.next_offset)])
    read = READS["label names" if method == "LabelNames" else "label values"]
    with pytest.raises(HoleInRange, match="corrupt_record"):
        read(seam, seam.coverage_ms, END_MS, False)
    with pytest.raises(HoleInRange, match="corrupt_record"):
        read(seam, START_MS, END_MS, False)
    whole = reader_pb2.LabelNamesRequest()
    assert seam.service.LabelNames(whole, context()).names, "without a start: what memory has"
