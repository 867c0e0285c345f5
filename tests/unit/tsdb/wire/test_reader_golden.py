"""Answers of Reader, byte for byte: the store's and the querier's, of memory, of history, and of both."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support.data.heads import Record, apply, new_head, register
from support.servers.queriers import ServedHeads, context, one_store, querier_over
from support.servers.seams import END_MS, START_MS, STEP_MS, WINDOW_MS, Seam
from tsdb.head.head import Head
from tsdb.head.state import Hole
from tsdb.v1 import common_pb2, reader_pb2

GOLDEN = Path(__file__).parents[3] / "golden" / "v1" / "reader"
LENGTH_BYTES = 4
ALL = [common_pb2.Matcher(name="job", value="test")]
ONE = [common_pb2.Matcher(type=common_pb2.Matcher.REGEX, name="__name__", value="m_[12]")]
FROM_MS = END_MS - WINDOW_MS // 2
HOLED = reader_pb2.ReadOptions(allow_holes=True, allow_stale=True)


def select(**fields: Any) -> tuple[str, Any]:
    return "Select", reader_pb2.SelectRequest(**{"matchers": ALL, "start_ms": FROM_MS, "end_ms": END_MS, **fields})


MEMORY: dict[str, tuple[str, Any]] = {
    "raw": select(),
    "columns": select(encoding=reader_pb2.COLUMNS),
    "columns_part": select(encoding=reader_pb2.COLUMNS, matchers=ONE, end_ms=END_MS - 3 * STEP_MS),
    "raw_without_labels": select(omit_labels=True),
    "last_two": select(last_n=2),
    "steps": select(step_ms=4 * STEP_MS, aggregation=reader_pb2.AVG),
    "partial": select(partial=True, start_ms=START_MS),
    "holes": select(options=HOLED),
    "nothing": select(matchers=[common_pb2.Matcher(name="job", value="other")]),
    "series": ("Series", reader_pb2.SeriesRequest(matchers=ONE)),
    "series_of_a_range": ("Series", reader_pb2.SeriesRequest(matchers=ONE, start_ms=FROM_MS, end_ms=END_MS)),
    "groups": ("Series", reader_pb2.SeriesRequest(group_by=["__name__", "missing"])),
    "label_names": ("LabelNames", reader_pb2.LabelNamesRequest(matchers=ONE)),
    "label_values": ("LabelValues", reader_pb2.LabelValuesRequest(name="instance", matchers=ALL)),
    "cardinality_parts": ("Cardinality", reader_pb2.CardinalityRequest(by=reader_pb2.BY_PAIR, hash_seed=7)),
}
JOINED: dict[str, tuple[str, Any]] = {
    "raw": select(start_ms=START_MS),
    "columns": select(encoding=reader_pb2.COLUMNS, start_ms=START_MS),
    "history": select(start_ms=START_MS, end_ms=START_MS + 2 * WINDOW_MS),
    "steps": select(start_ms=START_MS, step_ms=WINDOW_MS, aggregation=reader_pb2.SUM),
    "last_two": select(start_ms=START_MS, last_n=2),
    "series": ("Series", reader_pb2.SeriesRequest(matchers=ONE, start_ms=START_MS, end_ms=END_MS)),
    "groups": ("Series", reader_pb2.SeriesRequest(group_by=["instance"], start_ms=START_MS, end_ms=END_MS)),
    "label_names": ("LabelNames", reader_pb2.LabelNamesRequest(start_ms=START_MS, end_ms=END_MS)),
    "label_values": ("LabelValues", reader_pb2.LabelValuesRequest(name="instance", start_ms=START_MS, end_ms=END_MS)),
    "query": ("Query", reader_pb2.QueryRequest(query="m_1 * 2", start_ms=START_MS, end_ms=END_MS, step_ms=WINDOW_MS)),
    "query_of_ranges": ("Query", reader_pb2.QueryRequest(query="m_1[1s]", start_ms=END_MS, end_ms=END_MS)),
}
TWO = ("raw", "columns", "steps", "series", "label_values")
CASES = {
    **{f"store_{name}": ("store", *case) for name, case in MEMORY.items()},
    **{f"querier_{name}": ("querier", *case) for name, case in MEMORY.items() if "cardinality" not in name},
    **{f"joined_{name}": ("querier", *case) for name, case in JOINED.items()},
    **{f"two_partitions_store_{name}": ("store of two", *MEMORY[name]) for name in TWO},
    **{f"two_partitions_querier_{name}": ("querier of two", *MEMORY[name]) for name in TWO},
}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """Readers by the names in CASES."""
    seam = _seam()
    two = ServedHeads({partition: _head(partition) for partition in range(2)})
    two.catch_up()
    return {
        "store": seam.served.service,
        "querier": seam.service,
        "store of two": two.service,
        "querier of two": querier_over(one_store(two), None, window_ms=WINDOW_MS, partitions=2),
    }


def _head(partition: int) -> Head:
    made = new_head(partition, hold_ms=END_MS)
    numbers = range(3 * partition, 3 * partition + 3)
    register(made, numbers)
    for at, ts in enumerate(range(START_MS, END_MS, STEP_MS)):
        apply(made, [Record(at, ts, tuple((number, ts, number + ts / 8) for number in numbers))])
    made.maintain()
    return made


def _seam() -> Seam:
    late = [(1, END_MS - 7 * STEP_MS, -0.0), (4, END_MS - 9 * STEP_MS + 1, 4.5), (2, START_MS + 1, float("nan"))]
    made = Seam(late=late)
    made.head.contents.holes.add([Hole(END_MS + 5, END_MS + 9, "corrupt_record", 3, 11)])
    return made


def answered(services: dict[str, Any], name: str) -> list[bytes]:
    """The messages of an answer, encoded."""
    service, method, request = CASES[name]
    found = getattr(services[service], method)(request, context())
    messages: Iterable[Any] = found if method in ("Select", "Series", "Query") else [found]
    return [one if isinstance(one, bytes) else one.SerializeToString() for one in messages]


@pytest.mark.parametrize("name", CASES)
def test_an_answer_has_the_bytes_of_its_golden_file(services: dict[str, Any], name: str) -> None:
    framed = b"".join(len(one).to_bytes(LENGTH_BYTES, "little") + one for one in answered(services, name))
    assert framed == (GOLDEN / f"{name}.bin").read_bytes()
