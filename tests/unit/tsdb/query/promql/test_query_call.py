"""Reader.Query evaluates over memory and history, and refuses what it cannot answer before it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.servers.queriers import context
from support.servers.seams import END_MS, NUMBERS, START_MS, STEP_MS, Seam
from tsdb.client import ReadOptions
from tsdb.client.query import QueryResult, query, query_range
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.query import QueryOptions
from tsdb.query.service import QuerierService
from tsdb.reader.read_call import SelectLimits
from tsdb.selector.tokens import QueryError
from tsdb.v1 import common_pb2, reader_pb2


@pytest.fixture
def seam() -> Seam:
    return Seam()


def ask(service: QuerierService, call: Any) -> QueryResult:
    reader = call.reader()
    for message in service.Query(call.request, context()):
        reader.add(reader_pb2.QueryResponse.FromString(message.SerializeToString()))
    found = reader.finish()
    assert isinstance(found, QueryResult)
    return found


def test_a_range_spans_memory_and_history(seam: Seam) -> None:
    found = ask(seam.service, query_range('{job="test"}', START_MS, END_MS, STEP_MS))
    values, present = found.grid()
    assert len(found) == len(NUMBERS)
    want = seam.twin.samples(NUMBERS, START_MS, END_MS + 1)
    by_labels = {(labels["__name__"], labels["instance"]): row for row, (labels, _, _) in enumerate(found)}
    for number in NUMBERS:
        row = by_labels[f"m_{number % 3}", f"i{number // 3}"]
        newest = np.nan
        for step, ts_ms in enumerate(found.times_ms.tolist()):
            newest = want[number].get(ts_ms, newest)
            assert not present[row, step] or values[row, step] == newest


def test_an_instant_query_has_one_value_for_each_series(seam: Seam) -> None:
    found = ask(seam.service, query('sum by (__name__) ({job="test"})', END_MS - STEP_MS))
    assert found.kind == "vector"
    assert found.times_ms.tolist() == [END_MS - STEP_MS]
    assert {labels["__name__"] for labels, _, _ in found} == {"m_0", "m_1", "m_2"}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"start_ms": 5, "end_ms": 4, "step_ms": 1}, "end timestamp must not be before start"),
        ({"start_ms": 5, "end_ms": 6}, "needs a step_ms"),
        ({"start_ms": 0, "end_ms": 11_000, "step_ms": 1}, "more than 11000 steps"),
        ({"step_ms": -1}, "must not be negative"),
        ({"lookback_ms": -1}, "must not be negative"),
        ({"start_ms": 1 << 62, "end_ms": 1 << 62}, "out of range"),
        ({"options": reader_pb2.ReadOptions(partitions=[0])}, "allow_holes and max_lag_ms alone"),
        ({"options": reader_pb2.ReadOptions(after=[common_pb2.Token()])}, "allow_holes and max_lag_ms alone"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(seam: Seam, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        list(seam.service.Query(reader_pb2.QueryRequest(query="m_1", **fields), context()))


def test_the_most_steps_are_taken(seam: Seam) -> None:
    assert len(ask(seam.service, query_range("vector(1)", 0, 10_999, 1)).times_ms) == 11_000


def test_errors_of_text_samples_and_size_are_refused_each_in_its_way(seam: Seam) -> None:
    with pytest.raises(QueryError, match="1:6: parse error: unclosed left parenthesis"):
        ask(seam.service, query("rate(", END_MS))
    with pytest.raises(EvaluationError, match="many-to-many matching not allowed"):
        ask(seam.service, query("m_1 + on (job) m_2", END_MS - STEP_MS))
    small = QuerierService(seam.sources, SelectLimits(), promql=QueryOptions(values_max=10))
    with pytest.raises(EvaluationError, match="the limit is 10 values"):
        ask(small, query_range("m_1", START_MS, END_MS, STEP_MS))
    few = QuerierService(seam.sources, SelectLimits(samples_max=5))
    with pytest.raises(Overloaded):
        ask(few, query_range("m_1", START_MS, END_MS, STEP_MS))


def test_the_lookback_is_that_of_the_request(seam: Seam) -> None:
    late_ms = END_MS + 2 * STEP_MS
    assert len(ask(seam.service, query("m_1", late_ms, lookback_ms=STEP_MS))) == 0
    found = ask(seam.service, query("m_1", late_ms, lookback_ms=5 * STEP_MS, options=ReadOptions(allow_holes=True)))
    assert len(found) == 2
