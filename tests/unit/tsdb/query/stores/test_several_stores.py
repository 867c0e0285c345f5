"""Several stores behind one Reader: the requests to each, the merge of their answers, and the cost of a broken one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from support.data.heads import SMALL_TIMES, Record, apply, canonical_of, id_of, new_head
from support.fakes.fake_stores import FakeStore, FakeStores, state
from support.servers.queriers import TOPIC_ID, Context, ServedHeads, context, messages, querier_over, select
from tsdb.answer.answer import Answer, WatchAnswer
from tsdb.answer.spec import SelectSpec
from tsdb.client import ReadOptions, SelectQuery
from tsdb.head.head import Head
from tsdb.model.errors import CorruptData, Overloaded, Unavailable, WrongTopic
from tsdb.query.service import QuerierService
from tsdb.query.stores.interface import StoreReader, Stores
from tsdb.reader.read_call import SelectLimits
from tsdb.v1 import common_pb2, reader_pb2

NOW_MS = 10_000
PARTITIONS = 4
SELECTOR = '{job="test"}'
QUERY = SelectQuery(SELECTOR, NOW_MS - 100, NOW_MS + 1)


def head(partition: int) -> Head:
    """A head with two series that no other head has, one sample each."""
    made = new_head(partition, series=2 * PARTITIONS)
    some = [(number, NOW_MS - number, float(number)) for number in (2 * partition, 2 * partition + 1)]
    apply(made, [Record(0, NOW_MS, tuple(some))])
    return made


class Several:
    in_process = None

    def __init__(self, *stores: Any) -> None:
        self._stores = cast(tuple[StoreReader, ...], stores)

    def away(self) -> tuple[tuple[str, str], ...]:
        return ()

    def all(self) -> tuple[StoreReader, ...]:
        return self._stores

    def refresh(self, timeout_s: float) -> None:
        for store in self._stores:
            store.refresh(timeout_s)


def over(*stores: Any, limits: SelectLimits | None = None) -> QuerierService:
    several: Stores = Several(*stores)
    return querier_over(several, None, window_ms=SMALL_TIMES.window_ms, partitions=PARTITIONS, limits=limits)


def served(partitions: list[int], name: str) -> Any:
    store = ServedHeads({partition: head(partition) for partition in partitions})
    store.catch_up()
    return _Renamed(store.store, name)


class _Renamed:
    def __init__(self, inner: Any, name: str) -> None:
        self._inner = inner
        self.name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def service() -> QuerierService:
    """Partitions assigned in turns, as shards are."""
    return over(served([0, 2], "even"), served([1, 3], "odd"))


def test_answers_of_several_stores_become_one_in_the_order_of_partitions(service: QuerierService) -> None:
    frames = list(messages(service, QUERY))
    assert [state.partition for state in frames[0].header.partitions] == [0, 1, 2, 3]
    assert not any(frame.HasField("header") for frame in frames[1:])
    assert [block.partition for frame in frames for block in frame.series] == [0, 1, 2, 3]
    assert [raw.partition for frame in frames for raw in frame.raw] == [0, 1, 2, 3]
    result = select(service, QUERY)
    assert {series.canonical: series.values.tolist() for series in result.series} == {
        canonical_of(number): [float(number)] for number in range(2 * PARTITIONS)
    }


def test_columns_of_several_stores_stay_columns(service: QuerierService) -> None:
    query = SelectQuery(SELECTOR, NOW_MS - 100, NOW_MS + 1, encoding="columns")
    result = select(service, query)
    assert sorted(result.series_ids.tolist()) == sorted(id_of(number) for number in range(2 * PARTITIONS))


def test_only_the_stores_of_the_requested_partitions_are_called() -> None:
    even, odd = FakeStore("even", [state(0), state(2)]), FakeStore("odd", [state(1), state(3)])
    service = querier_over(FakeStores(even, odd), None, window_ms=400, partitions=4)
    tokens = [common_pb2.Token(topic_id=TOPIC_ID, partition=p, record_offset=p) for p in range(4)]
    select(service, SelectQuery("m", 1, 2, options=ReadOptions(partitions=[2], after=tokens, max_lag_ms=7)))
    assert odd.asked == []
    (asked,) = even.asked
    assert list(asked.options.partitions) == [2]
    assert [token.partition for token in asked.options.after] == [2]
    assert asked.options.max_lag_ms == 7


def test_a_token_of_another_log_is_refused_before_any_store_is_called() -> None:
    store = FakeStore("a", [state()])
    service = querier_over(FakeStores(store), None, window_ms=400)
    token = common_pb2.Token(topic_id="other", record_offset=1)
    with pytest.raises(WrongTopic):
        select(service, SelectQuery("m", 1, 2, options=ReadOptions(after=[token])))
    assert store.asked == []


def test_a_store_that_refuses_costs_a_second_call_and_not_the_answer() -> None:
    first, second = FakeStore("a", [state(0)]), FakeStore("b", [state(0, lag_ms=5000)])
    service = querier_over(FakeStores(first, second), None, window_ms=400)
    first.fail = [Unavailable("gone", reason="unreachable")]
    select(service, SelectQuery("m", 1, 2))
    assert (len(first.asked), len(second.asked)) == (1, 1)
    first.fail, second.fail = [Unavailable("gone")], [Unavailable("behind", reason="lagging")]
    with pytest.raises(Unavailable, match="behind"):
        select(service, SelectQuery("m", 1, 2))


def test_only_the_partitions_of_the_store_that_refused_are_requested_again() -> None:
    broken = FakeStore("a", [state(0)])
    other, spare = FakeStore("b", [state(1)]), FakeStore("c", [state(0, lag_ms=9000), state(1, lag_ms=9000)])
    broken.fail = [Unavailable("gone")]
    select(querier_over(FakeStores(broken, other, spare), None, window_ms=400, partitions=2), SelectQuery("m", 1, 2))
    assert [list(request.options.partitions) for request in other.asked] == [[1]]
    assert [list(request.options.partitions) for request in spare.asked] == [[0]]


def test_an_answer_that_breaks_off_is_never_returned_as_whole() -> None:
    class Cut(FakeStore):
        def select_messages(self, request: reader_pb2.SelectRequest) -> Iterator[reader_pb2.SelectResponse]:
            for message in super().select_messages(request):
                message.ClearField("trailer")
                yield message

    stores = FakeStores(Cut("a", [state(0)]), FakeStore("b", [state(1)]))
    with pytest.raises(Unavailable) as caught:
        select(querier_over(stores, None, window_ms=400, partitions=2), SelectQuery("m", 1, 2))
    assert caught.value.reason == "answer_cut"


def test_an_answer_without_a_message_is_a_store_that_does_not_answer() -> None:
    class Silent(FakeStore):
        def select(self, spec: SelectSpec, caller: Any) -> Iterator[Answer]:
            yield from ()

    with pytest.raises(Unavailable, match="ended its answer before it began"):
        select(querier_over(FakeStores(Silent("a", [state()])), None, window_ms=400), SelectQuery("m", 1, 2))


def test_the_limits_hold_for_all_stores_together() -> None:
    # Every head has all 8 series of the test: each store has 16, and together they have 32.
    limits = SelectLimits(series_max=20)
    with pytest.raises(Overloaded, match="the answer has 32 series; limit is 20"):
        select(over(served([0, 2], "even"), served([1, 3], "odd"), limits=limits), QUERY)


def series_of(service: QuerierService, request: reader_pb2.SeriesRequest) -> list[reader_pb2.SeriesResponse]:
    return list(service.Series(request, context()))


def test_series_of_several_stores_come_by_partition_under_one_header(service: QuerierService) -> None:
    header, *blocks = series_of(service, reader_pb2.SeriesRequest())
    assert [state.partition for state in header.header.partitions] == [0, 1, 2, 3]
    assert [block.series.partition for block in blocks] == [0, 1, 2, 3]
    with pytest.raises(Overloaded):
        series_of(service, reader_pb2.SeriesRequest(series_max=3))


def test_groups_of_several_stores_are_added_up(service: QuerierService) -> None:
    _, answer = series_of(service, reader_pb2.SeriesRequest(group_by=["job"]))
    # Each head has all series of the test, and each of the four counts them.
    assert [(list(g.values), g.series) for g in answer.groups.groups] == [(["test"], 2 * PARTITIONS * PARTITIONS)]


def test_a_missing_block_is_an_error() -> None:
    class Forgetful(FakeStore):
        def series_messages(self, request: reader_pb2.SeriesRequest) -> Iterator[reader_pb2.SeriesResponse]:
            yield next(super().series_messages(request))

    service = querier_over(
        FakeStores(Forgetful("a", [state(0)]), FakeStore("b", [state(1)])), None, window_ms=400, partitions=2
    )
    with pytest.raises(CorruptData, match=r"partitions \[0\]"):
        series_of(service, reader_pb2.SeriesRequest())


def test_label_names_and_values_are_those_of_all_stores() -> None:
    stores = FakeStores(FakeStore("a", [state(0)]), FakeStore("b", [state(1)]))
    service = querier_over(stores, None, window_ms=400, partitions=2)
    names = service.LabelNames(reader_pb2.LabelNamesRequest(), context())
    assert list(names.names) == ["a", "b", "from"]
    assert [state.partition for state in names.header.partitions] == [0, 1]
    values = service.LabelValues(reader_pb2.LabelValuesRequest(name="x"), context())
    assert list(values.values) == ["a", "b", "from"]
    with pytest.raises(Overloaded, match="over 2 values"):
        service.LabelValues(reader_pb2.LabelValuesRequest(name="x", values_max=2), context())


def test_coverage_is_that_of_the_best_store_of_each_partition() -> None:
    deep = FakeStore("deep", [state(0, coverage_ms=1), state(1, ready=False)])
    fresh = FakeStore("fresh", [state(0, coverage_ms=900, lag_ms=9000), state(1, coverage_ms=900)])
    service = querier_over(FakeStores(deep, fresh), None, window_ms=400, partitions=3)
    answer = service.Coverage(reader_pb2.CoverageRequest(), context())
    assert [(one.partition, one.coverage_start_ms) for one in answer.partitions] == [(0, 1), (1, 900)]
    assert list(answer.history) == []


def test_coverage_states_the_sizes_of_a_store_in_the_same_process() -> None:
    service = over(served([0, 1, 2, 3], "all"))
    states = service.Coverage(reader_pb2.CoverageRequest(), context()).partitions
    assert [(one.series, one.samples) for one in states] == [(2 * PARTITIONS, 2)] * PARTITIONS
    assert all(one.bytes > 0 for one in states)


def watched(partition: int, offset: int) -> WatchAnswer:
    return WatchAnswer(partition, TOPIC_ID, offset)


M = common_pb2.Matcher(name="__name__", value="m")


def test_a_watch_is_passed_on_with_the_tokens_of_each_store_and_ends_with_the_first_that_does() -> None:
    even, odd = FakeStore("even", [state(0)]), FakeStore("odd", [state(1)])
    even.watched = [watched(0, offset) for offset in range(3)]
    odd.watched = [watched(1, offset) for offset in range(200)]
    service = querier_over(FakeStores(even, odd), None, window_ms=400, partitions=2)
    request = reader_pb2.WatchRequest(matchers=[M])
    getattr(request, "from").add(topic_id=TOPIC_ID, partition=1, record_offset=41)  # A keyword of Python.
    got: list[reader_pb2.WatchResponse] = []
    with pytest.raises(Unavailable, match="a store ended the watch"):
        got.extend(service.Watch(request, context()))
    for partition in (0, 1):
        offsets = [one.last_record_offset for one in got if one.partition == partition]
        assert offsets == list(range(len(offsets)))
    assert [list(asked.partitions) for asked in (*even.asked, *odd.asked)] == [[0], [1]]
    assert not even.asked[0].resume
    assert [token.record_offset for token in odd.asked[0].resume] == [41]


def test_a_watch_of_one_store_ends_with_the_error_of_the_store() -> None:
    store = FakeStore("a", [state(0)])
    store.watched = [watched(0, 5), Unavailable("draining", reason="draining")]
    service = querier_over(FakeStores(store), None, window_ms=400)
    stream = service.Watch(reader_pb2.WatchRequest(matchers=[M]), context())
    assert next(stream).last_record_offset == 5
    with pytest.raises(Unavailable, match="draining"):
        next(stream)


def test_a_watcher_that_leaves_ends_the_watch_of_all_stores() -> None:
    quiet = [FakeStore("a", [state(0)]), FakeStore("b", [state(1)])]
    caller = Context()
    for number, store in enumerate(quiet):
        store.watched = [watched(number, offset) for offset in range(1000)]
    stream = querier_over(FakeStores(*quiet), None, window_ms=400, partitions=2).Watch(
        reader_pb2.WatchRequest(matchers=[M]), cast(Any, caller)
    )
    next(stream)
    caller.leave()
    assert list(stream) == []
