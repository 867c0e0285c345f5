"""Bounds of a query: more is refused before it is allocated."""

from __future__ import annotations

import pytest

from tsdb.model.errors import Overloaded
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.query import QueryOptions, instant_query, range_query
from tsdb.promql.evaluate.ranges import range_functions
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import Pool, label_sets, parsed
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.memory import MemoryStorage

HOUR_MS = 3_600_000


@pytest.fixture
def storage() -> MemoryStorage:
    found = MemoryStorage()
    for row in range(100):
        found.add((("__name__", "x"), ("row", str(row))), [(0, float(row))])
    return found


@pytest.mark.parametrize(
    "query",
    [
        "x",
        "x @ 0",
        "rate(x[1h])",
        "x * on() group_left() sum(x)",
        "sum_over_time(x[1h:1s])",
        "vector(1)",
        "count_values('v', x)",
    ],
)
def test_a_vector_with_too_many_values_is_refused(storage: MemoryStorage, query: str) -> None:
    with pytest.raises(EvaluationError, match=r"too many samples.* the limit is 3000 values") as refusal:
        range_query(query, storage, 0, HOUR_MS, 1000, QueryOptions(values_max=3000))
    assert refusal.value.reason == "too_many_samples"


def test_pairs_of_two_sides_are_counted_before_they_are_made(storage: MemoryStorage) -> None:
    # 100 series match 100, each at another time, so that none is a second match: 10,000 pairs.
    for row in range(100):
        for name in ("a", "b"):
            storage.add((("__name__", name), ("row", str(row))), [(row * HOUR_MS, 1.0)])
    with pytest.raises(EvaluationError, match="10000 series at 100 steps"):
        range_query("a + on() b", storage, 0, 99 * HOUR_MS, HOUR_MS, QueryOptions(values_max=100_000))


def test_labels_that_double_with_each_call_are_refused(storage: MemoryStorage) -> None:
    query = "x"
    for _ in range(40):
        query = f'label_join({query}, "row", "", "row", "row")'
    with pytest.raises(EvaluationError, match="labels of this query are too long") as refusal:
        instant_query(query, storage, 0)
    assert refusal.value.reason == "labels_too_long"


def test_series_that_share_no_names_are_refused() -> None:
    canonical = [b"n%d\xffv" % row for row in range(20)]
    assert len(parsed(Pool(cells_max=400), canonical)) == 20
    with pytest.raises(EvaluationError, match="20 series have 20 names") as refusal:
        parsed(Pool(cells_max=399), canonical)
    assert refusal.value.reason == "labels_too_many"


@pytest.mark.parametrize("query", ["x + x + x + x + x + x", "-x", "sum_over_time((x + x)[1h:1m])", "abs(x @ 0) + x"])
def test_a_query_holds_the_vectors_of_one_operation_at_a_time(storage: MemoryStorage, query: str) -> None:
    held: list[int] = []
    found = range_query(query, storage, 0, HOUR_MS, 60_000, QueryOptions(hold=held.append))
    block = found.value
    assert isinstance(block, Block)
    assert block.nbytes <= max(held) <= 6 * block.nbytes
    assert held[-1] == evaluated(query, storage).nbytes, "the parts were given back"


def evaluated(query: str, storage: MemoryStorage) -> Block:
    block = range_query(query, storage, 0, HOUR_MS, 60_000).value
    assert isinstance(block, Block)
    return block


@pytest.mark.parametrize("query", ["x", "-x", "x + x", "sum_over_time(x[1h:1s])", "x @ 0", "rate(x[1h])"])
def test_a_query_without_room_for_its_vectors_ends(storage: MemoryStorage, query: str) -> None:
    def hold(size: int) -> None:
        if size > 50_000:
            raise Overloaded("no room", reason="answer_too_large")

    with pytest.raises(Overloaded, match="no room"):
        range_query(query, storage, 0, HOUR_MS, 1000, QueryOptions(hold=hold))


def test_a_check_ends_a_query_between_its_parts(storage: MemoryStorage) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        instant_query("x + x + x + x + x + x", storage, 0, QueryOptions(check=check))
    assert calls == 4


def test_a_pattern_that_is_too_large_is_refused(storage: MemoryStorage) -> None:
    pattern = "a" * 20_000
    found = instant_query(f'label_replace(x, "b", "c", "row", "({pattern})|7")', storage, 0, QueryOptions(ALL_FEATURES))
    assert isinstance(found.value, Block)
    assert found.value.labels.texts("b").count("c") == 1
    pattern = "a" * 200_000
    with pytest.raises(Exception, match="limit is 131072"):
        instant_query(f'label_replace(x, "b", "c", "row", "{pattern}")', storage, 0, QueryOptions(ALL_FEATURES))


def test_equal_texts_have_one_number() -> None:
    pool = Pool()
    sets = label_sets(pool, [{"a": "x", "b": "x"}])
    assert sets.numbers.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    "query",
    [
        "sum_over_time(vector(1)[30d:1s])",
        "quantile_over_time(0.5, vector(time())[30d:1s])",
        "max_over_time((time() * vector(1))[30d:1s])",
        "sum_over_time(absent(nothing)[30d:1s])",
        "sum_over_time((nothing or vector(1))[30d:1s])",
        "sum_over_time(vector(scalar(nothing))[30d:1s])",
        "sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])",
        " + ".join(["sum_over_time(vector(1)[1d:1m])"] * 20),
        f"sum_over_time(({'+'.join(['vector(1)'] * 150)})[1d:1s])",
        "rate(vector(1)[30d:1s])",
        "-(vector(1) + on() sum_over_time(vector(1)[30d:1s]))",
    ],
)
def test_subqueries_of_constants_are_refused_before_they_take_time(storage: MemoryStorage, query: str) -> None:
    # Their evaluation would take hours.
    with pytest.raises(EvaluationError, match="in subqueries over all their steps; the limit is 20000000") as refusal:
        range_query(query, storage, 0, 10_999 * 60_000, 60_000)
    assert refusal.value.reason == "too_many_samples"


@pytest.mark.parametrize(
    "query",
    [
        "sum_over_time(vector(1)[1d:1m])",
        "max_over_time(vector(time())[1h:1m])",
        "sum_over_time(x{row='1'}[7d:10m])",
        "count_over_time(x[1h:1m])",
    ],
)
def test_subqueries_that_are_small_or_read_samples_are_answered(storage: MemoryStorage, query: str) -> None:
    found = range_query(query, storage, 0, 9_999 * 60_000, 60_000)
    assert isinstance(found.value, Block)


def test_a_range_function_over_many_samples_ends_with_its_query_and_has_the_same_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = MemoryStorage()
    storage.add((("__name__", "y"),), [(ts * 1000, float(ts % 7)) for ts in range(4000)])
    whole = range_query("quantile_over_time(0.3, y[10m])", storage, 0, 4_000_000, 1000).value
    monkeypatch.setattr(range_functions, "VISITS_A_PIECE", 20_000)
    checks: list[int] = []
    pieces = range_query(
        "quantile_over_time(0.3, y[10m])", storage, 0, 4_000_000, 1000, QueryOptions(check=lambda: checks.append(1))
    ).value
    assert isinstance(whole, Block)
    assert isinstance(pieces, Block)
    assert len(checks) > 100
    assert (whole.present == pieces.present).all()
    assert (whole.values[whole.present] == pieces.values[pieces.present]).all()
