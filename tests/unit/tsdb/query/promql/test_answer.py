"""Messages of Reader.Query carry all that the evaluation found."""

from __future__ import annotations

import numpy as np
import pytest

from support.data.detail_cases import histograms
from tsdb.client.query import QueryResult, query, query_range
from tsdb.model.details import SampleDetails, same_details
from tsdb.model.errors import CorruptData, InvalidRequest, Unavailable
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.native.histograms import HistogramCells, from_columns
from tsdb.promql.evaluate.query import EvaluationResult, instant_query
from tsdb.promql.evaluate.query import range_query as evaluated_range
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.promql.evaluate.vectors.labels import Pool, label_sets
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


def sent(result: EvaluationResult) -> list[reader_pb2.QueryResponse]:
    return list(messages(result, with_histograms=True))


def received(answer: list[reader_pb2.QueryResponse]) -> QueryResult:
    reader = query("x", 0).reader()
    for message in answer:
        reader.add(reader_pb2.QueryResponse.FromString(message.SerializeToString()))
    return reader.finish()


@pytest.mark.parametrize("frame_values", [1, 7, 64, answer.FRAME_VALUES])
def test_a_range_query_arrives_with_its_gaps(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch, frame_values: int
) -> None:
    monkeypatch.setattr(answer, "FRAME_VALUES", frame_values)
    result = evaluated_range("x", storage, 0, 50_000, 1000)
    got = received(sent(result))
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
    got = received(sent(instant_query("x[10s]", storage, 20_500)))
    assert got.kind == "ranges"
    assert [(labels["row"], ts_ms[0], len(ts_ms)) for labels, ts_ms, _ in got] == [
        (f"{row:02}", max(row, 11) * 1000, 20 - max(row, 11) + 1) for row in range(20)
    ]
    with pytest.raises(InvalidRequest, match="no steps"):
        got.grid()


def test_numbers_texts_and_nothing_arrive(storage: MemoryStorage) -> None:
    number = received(sent(instant_query("1.5", storage, 7000)))
    assert (number.kind, number.ts_ms.tolist(), number.values.tolist()) == ("scalar", [7000], [1.5])
    text = received(sent(instant_query('"ä"', storage, 7000)))
    assert (text.kind, text.text, len(text)) == ("text", "ä", 0)
    nothing = received(sent(instant_query("absent_series", storage, 7000)))
    assert (nothing.kind, len(nothing), len(nothing.values)) == ("vector", 0, 0)


def test_warnings_and_infos_arrive(storage: MemoryStorage) -> None:
    got = received(sent(instant_query("quantile(2, rate(x[20s]))", storage, 30_000)))
    assert got.warnings == ["PromQL warning: quantile value should be between 0 and 1, got 2 (1:10)"]
    assert len(got.infos) == 1


def test_tables_have_a_row_for_each_value(storage: MemoryStorage) -> None:
    got = received(sent(evaluated_range("x", storage, 0, 3000, 1000)))
    frame = got.to_pandas()
    assert frame.columns.tolist() == ["__name__", "row", "ts_ms", "value"]
    assert len(frame) == got.to_arrow().num_rows == 10


def test_a_cut_or_malformed_answer_is_refused(storage: MemoryStorage) -> None:
    whole = sent(evaluated_range("x", storage, 0, 3000, 1000))
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


@pytest.mark.parametrize("frame_values", [1, 3, answer.FRAME_VALUES])
@pytest.mark.parametrize("is_range", [False, True])
def test_histograms_arrive_beside_numbers(monkeypatch: pytest.MonkeyPatch, frame_values: int, is_range: bool) -> None:
    monkeypatch.setattr(answer, "FRAME_VALUES", frame_values)
    columns = histograms([0, 1, 2, 4, 0, 1], 4, is_integer=False)
    of = np.array([[0, -1, 1], [-1, -1, -1], [2, 3, -1], [4, 5, -1]])
    values = np.arange(12.0).reshape(4, 3)
    labels = label_sets(Pool(), [{"row": str(row)} for row in range(4)])
    cells = HistogramCells(from_columns(columns), of)
    times_ms = np.array([0, 1000, 2000])
    value: Block | Samples = Block(labels, values, np.ones((4, 3), np.bool_), np.zeros(4, np.bool_), cells)
    if is_range:
        flat = HistogramCells(cells.histograms, of.ravel())
        starts = np.arange(0, 13, 3)
        value = Samples(labels, starts, np.tile(times_ms, 4), values.ravel(), np.zeros(4, np.bool_), flat)
    got = received(sent(EvaluationResult(value, times_ms, (), ())))
    assert got.details is not None
    wanted = SampleDetails(None, columns, of.ravel())
    assert same_details(got.details, wanted)
    floats = of.ravel() < 0
    np.testing.assert_array_equal(got.values[floats], values.ravel()[floats])
    np.testing.assert_array_equal(got.values[~floats], columns.sums)
    table = got.to_arrow()
    assert table["value"].null_count == 6
    assert [one is None for one in table["histogram"].to_pylist()] == floats.tolist()
    frame = got.to_pandas()
    assert frame["histogram"].isna().tolist() == floats.tolist()
    assert frame["histogram"].dropna().iloc[0]["count"] == columns.counts[0]
    assert frame["value"].isna().tolist() == (~floats).tolist()


def test_a_client_that_reads_no_histograms_gets_an_error() -> None:
    columns = histograms([0], 4)
    labels = label_sets(Pool(), [{}])
    cells = HistogramCells(from_columns(columns), np.array([[0]]))
    block = Block(labels, np.zeros((1, 1)), np.ones((1, 1), np.bool_), np.zeros(1, np.bool_), cells)
    with pytest.raises(EvaluationError, match="a client of this version shows numbers alone"):
        next(messages(EvaluationResult(block, np.array([0]), (), ()), with_histograms=False))
