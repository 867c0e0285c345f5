"""Rows of a result are the bytes that the twin writes, wherever the pieces end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.oracles.json_twin import number_text, row_text, time_text
from tsdb.api.prometheus.json import rows
from tsdb.api.prometheus.json.rows import json_text, matrix_rows, sample_rows, vector_rows
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.promql.evaluate.vectors.labels import LabelSets, Pool, label_sets
from tsdb.promql.syntax.numbers import shown_f

EDGES = [
    *(0.0, -0.0, 1.0, -1.0, 9.0, 10.0, 0.1, 0.3, 2.5, 1 / 3, 123456.789, 99999999.0, 100000000.0, 123456789.0),
    *(
        1e-6,
        9.999999999999999e-7,
        1e-7,
        1.23e-7,
        1e20,
        999999999999999900000.0,
        1e21,
        1.5e21,
        1e22,
        1e23,
        1e100,
        1e-100,
    ),
    *(5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740991.0, 9007199254740992.0),
    *(9007199254740993.0, 9007199254740994.0, float("nan"), float("inf"), float("-inf"), 4.35, 0.000001, 8.41e21),
    *(9.5367431640625e-07, 2.0**63, 2.0**64, 2.0**-1074, 9409340012568248e18, 5.0e-324, 299792458.0),
]
DECIMALS = st.builds(
    lambda number, places: round(number / 10**places, places), st.integers(-(10**12), 10**12), st.integers(0, 9)
)
NUMBERS = st.floats() | DECIMALS | st.integers(-(2**53), 2**53).map(float) | st.sampled_from(EDGES)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
LABELS = st.dictionaries(TEXTS.filter(bool), TEXTS.filter(bool), max_size=4)


def labels_of(*sets: dict[str, str]) -> LabelSets:
    return label_sets(Pool(), list(sets))


def block(labels: LabelSets, values: Sequence[Sequence[float]], present: Sequence[Sequence[bool]]) -> Block:
    shape = len(labels), len(values[0]) if values else 0
    numbers = np.array(values, np.float64).reshape(shape)
    return Block(labels, numbers, np.array(present, np.bool_).reshape(shape), np.zeros(len(labels), np.bool_))


def joined(pieces: Iterable[memoryview]) -> bytes:
    """A piece is copied before the next one is made."""
    return b"".join(map(bytes, pieces))


def texts_of(numbers: NDArray[np.float64]) -> list[str]:
    """Each number as the kernel writes it."""
    one = block(labels_of({"a": "b"}), [numbers.tolist()], [[True] * len(numbers)])
    written = joined(matrix_rows(one, np.arange(len(numbers), dtype=np.int64)))
    return [text for _, text in json.loads(written)["values"]] if len(numbers) else []


@pytest.mark.parametrize("value", EDGES)
def test_edges_of_float64_are_written_as_go_does(value: float) -> None:
    assert texts_of(np.array([value])) == [number_text(value)]


@given(st.lists(NUMBERS, max_size=50))
def test_each_number_has_its_shortest_text(values: list[float]) -> None:
    assert texts_of(np.array(values, np.float64)) == [number_text(value) for value in values]


def test_many_bit_patterns_have_their_shortest_text() -> None:
    rng = np.random.default_rng(17)
    noise = rng.integers(0, 2**64, 100_000, dtype=np.uint64).view(np.float64)
    powers = np.concatenate([2.0 ** np.arange(-1074, 1024), 10.0 ** np.arange(-323, 309)])
    near = np.concatenate([powers, np.nextafter(powers, np.inf), np.nextafter(powers, 0)])
    values = np.concatenate([noise, near, rng.normal(size=50_000), np.round(rng.normal(size=50_000) * 1000, 2)])
    assert texts_of(values) == [number_text(value) for value in values.tolist()]


@given(
    st.lists(LABELS, min_size=1, max_size=4),
    st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=6, unique=True).map(sorted),
    st.data(),
)
def test_a_matrix_is_that_of_the_twin(sets: list[dict[str, str]], times: list[int], data: st.DataObject) -> None:
    row = st.lists(NUMBERS, min_size=len(times), max_size=len(times))
    values = data.draw(st.lists(row, min_size=len(sets), max_size=len(sets)))
    there = st.lists(st.booleans(), min_size=len(times), max_size=len(times))
    present = data.draw(st.lists(there, min_size=len(sets), max_size=len(sets)))
    one, times_ms = block(labels_of(*sets), values, present), np.array(times, np.int64)
    got = joined(matrix_rows(one, times_ms))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "SMALL_CELLS", -1)
        assert joined(matrix_rows(one, times_ms)) == got, "many rows are written as few are"
    wanted = []
    for labels, numbers, marks in zip(sets, values, present, strict=True):
        points = [(ts, number) for ts, number, mark in zip(times, numbers, marks, strict=True) if mark]
        if points:
            wanted.append(row_text(labels, points))
    assert json.loads(b"[" + got + b"]") == json.loads(f"[{','.join(wanted)}]")
    assert got.count(b'"]') >= sum(map(sum, present))


def test_the_bytes_are_those_of_prometheus() -> None:
    one = block(
        labels_of({"job": "a", "__name__": "up"}, {}), [[1.0, 0.5], [1e-7, 1e21]], [[True, True], [False, True]]
    )
    got = joined(matrix_rows(one, np.array([1435781451781, -1250], np.int64)))
    assert got == (
        b'{"metric":{"__name__":"up","job":"a"},"values":[[1435781451.781,"1"],[-1.250,"0.5"]]},'
        b'{"metric":{},"values":[[-1.250,"1e+21"]]}'
    )


def test_a_vector_has_one_value_a_row() -> None:
    one = block(labels_of({"a": "b"}, {"a": "c"}), [[1.5], [2.0]], [[True], [True]])
    got = joined(vector_rows(one, np.array([1500], np.int64)))
    assert got == b'{"metric":{"a":"b"},"value":[1.500,"1.5"]},{"metric":{"a":"c"},"value":[1.500,"2"]}'


def test_samples_have_times_of_each_series() -> None:
    labels = labels_of({"a": "b"}, {"a": "c"}, {"a": "d"})
    samples = Samples(
        labels, np.array([0, 2, 2, 3]), np.array([1, 2000, -5]), np.array([1.0, 2.0, 3.0]), np.zeros(3, np.bool_)
    )
    got = joined(sample_rows(samples))
    assert got == b'{"metric":{"a":"b"},"values":[[0.001,"1"],[2,"2"]]},{"metric":{"a":"d"},"values":[[-0.005,"3"]]}'


def test_pieces_end_anywhere_and_join_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    sets = [{"series": str(number), "long": "x" * int(rng.integers(0, 400))} for number in range(60)]
    values, present = rng.normal(size=(60, 50)), rng.random((60, 50)) < 0.7
    one = Block(labels_of(*sets), values, present, np.zeros(60, np.bool_))
    times = np.arange(50, dtype=np.int64) * 60_000
    whole = list(map(bytes, matrix_rows(one, times)))
    monkeypatch.setattr(rows, "PIECE_BYTES", 700)  # Less than the labels of some rows.
    pieces = list(map(bytes, matrix_rows(one, times)))
    assert b"".join(pieces) == b"".join(whole)
    assert len(pieces) > 100
    assert len(whole) == 1


def test_a_long_label_is_written_and_not_remembered() -> None:
    value, before = "x" * rows.KEPT_CHARS_MAX, rows._kept_label.cache_info().currsize
    got = joined(vector_rows(block(labels_of({"a": value}), [[1.0]], [[True]]), np.array([0], np.int64)))
    assert json.loads(got)["metric"] == {"a": value}
    assert rows._kept_label.cache_info().currsize == before


def test_nothing_is_written_without_rows() -> None:
    assert list(matrix_rows(block(labels_of(), [], []), np.array([0, 1], np.int64))) == []
    assert list(matrix_rows(block(labels_of({}), [[1.0]], [[False]]), np.array([0], np.int64))) == []


@pytest.mark.parametrize("time_ms", [0, 1, 10, 100, 999, 1000, 1001, 59_999, -1, -1000, 1 << 61, -(1 << 61)])
def test_times_are_seconds(time_ms: int) -> None:
    one = block(labels_of({}), [[1.0]], [[True]])
    assert joined(vector_rows(one, np.array([time_ms], np.int64))) == (
        b'{"metric":{},"value":[%b,"1"]}' % time_text(time_ms).encode()
    )


@pytest.mark.parametrize("text", ["", "a", 'quoted "', "back\\slash", "\n\x00\x1f\x7f", "é\U0001f600\u2028", "<&>"])
def test_texts_of_json_read_back(text: str) -> None:
    assert json.loads(json_text(text)) == text


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    assert json.loads(json_text("a\udcffb")) == "a\ufffdb"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e21, "1000000000000000000000"), (1e-7, "0.0000001"), (2.5, "2.5"), (-0.0, "-0"), (float("inf"), "+Inf")],
)
def test_a_scalar_has_no_exponent(value: float, text: str) -> None:
    assert shown_f(value) == text
