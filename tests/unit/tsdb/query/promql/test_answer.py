"""Messages of Reader.Query carry all that the evaluation found."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.client.query import QueryResult, query, query_range
from tsdb.model.errors import CorruptData, InvalidRequest, Unavailable
from tsdb.promql.evaluate.query import instant_query
from tsdb.promql.evaluate.query import range_query as evaluated_range
from tsdb.query.promql import answer
from tsdb.query.promql.answer import messages
from tsdb.rules.memory import MemoryStorage
from tsdb.v1 import reader_pb2


@pytest.fixture
def storage() -> MemoryStorage:
    found = MemoryStorage()
    for row in range(20):
        samples = [(step * 1000, row + step / 10) for step in range(row, 40)]
        found.add((("__name__", "x"), ("row", f"{row:02}")), [*samples, (40_000, float("nan"))])
    return found


def received(sent: list[reader_pb2.QueryResponse]) -> QueryResult:
    reader = query("x", 0).reader()
    for message in sent:
        reader.add(reader_pb2.QueryResponse.FromString(message.SerializeToString()))
    return reader.finish()


@pytest.mark.parametrize("frame_values", [1, 7, 64, answer.FRAME_VALUES])
def test_a_range_query_arrives_with_its_gaps(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch, frame_values: int
) -> None:
    monkeypatch.setattr(answer, "FRAME_VALUES", frame_values)
    result = evaluated_range("x", storage, 0, 50_000, 1000)
    got = received(list(messages(result)))
    values, present = got.grid()
    assert (got.kind, len(got)) == ("vector", 20)
    assert got.times_ms.tolist() == list(range(0, 50_001, 1000))
    assert (present == result.value.present).all()  # type: ignore[union-attr]
    np.testing.assert_array_equal(values[present], result.value.values[present])  # type: ignore[union-attr]
    assert [labels["row"] for labels, _, _ in got] == [f"{row:02}" for row in range(20)]


@pytest.mark.parametrize("frame_values", [1, 7, answer.FRAME_VALUES])
def test_ranges_arrive_with_their_own_times(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch, frame_values: int
) -> None:
    monkeypatch.setattr(answer, "FRAME_VALUES", frame_values)
    got = received(list(messages(instant_query("x[10s]", storage, 20_500))))
    assert got.kind == "ranges"
    assert [(labels["row"], ts_ms[0], len(ts_ms)) for labels, ts_ms, _ in got] == [
        (f"{row:02}", max(row, 11) * 1000, 20 - max(row, 11) + 1) for row in range(20)
    ]
    with pytest.raises(InvalidRequest, match="no steps"):
        got.grid()


def test_numbers_texts_and_nothing_arrive(storage: MemoryStorage) -> None:
    number = received(list(messages(instant_query("1.5", storage, 7000))))
    assert (number.kind, number.ts_ms.tolist(), number.values.tolist()) == ("scalar", [7000], [1.5])
    text = received(list(messages(instant_query('"ä"', storage, 7000))))
    assert (text.kind, text.text, len(text)) == ("text", "ä", 0)
    nothing = received(list(messages(instant_query("absent_series", storage, 7000))))
    assert (nothing.kind, len(nothing), len(nothing.values)) == ("vector", 0, 0)


def test_warnings_and_infos_arrive(storage: MemoryStorage) -> None:
    got = received(list(messages(instant_query("quantile(2, rate(x[20s]))", storage, 30_000))))
    assert got.warnings == ["PromQL warning: quantile value should be between 0 and 1, got 2 (1:10)"]
    assert len(got.infos) == 1


def test_tables_have_a_row_for_each_value(storage: MemoryStorage) -> None:
    got = received(list(messages(evaluated_range("x", storage, 0, 3000, 1000))))
    frame = got.to_pandas()
    assert frame.columns.tolist() == ["__name__", "row", "ts_ms", "value"]
    assert len(frame) == got.to_arrow().num_rows == 10


def test_a_cut_or_malformed_answer_is_refused(storage: MemoryStorage) -> None:
    whole = list(messages(evaluated_range("x", storage, 0, 3000, 1000)))
    for cut in range(len(whole)):
        with pytest.raises(Unavailable, match="cut off"):
            received(whole[:cut])
    for field in ("present", "counts", "label_lengths", "values"):
        broken = [reader_pb2.QueryResponse.FromString(message.SerializeToString()) for message in whole]
        setattr(broken[1].frame, field, getattr(broken[1].frame, field)[:-1] + b"\x7f\x00")
        with pytest.raises(CorruptData, match="malformed"):
            received(broken)


def test_a_step_of_nothing_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidRequest, match="must be above 0"):
        query_range("x", 0, 1000, 0)
