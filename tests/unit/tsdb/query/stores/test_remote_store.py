"""A store's call ends with the call that it is part of, and its error is one of tsdb.model.errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from support.fakes.fake_reader import FakeServer
from support.servers.queriers import Context
from tsdb.answer.spec import ExemplarsSpec, LabelsSpec, SelectSpec, SeriesSpec, WatchSpec
from tsdb.client.channel import open_channel
from tsdb.model.clock import SystemClock
from tsdb.model.errors import HoleInRange, Unavailable, worth_retrying
from tsdb.model.labels import canonical_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.query.stores.remote import RemoteStore
from tsdb.selector.selectors import parse_selector
from tsdb.v1 import common_pb2, reader_pb2, reader_pb2_grpc
from tsdb.wire.state import coverage_states

WITHIN_S = 60.0
M = common_pb2.Matcher(name="__name__", value="m")
SELECT = SelectSpec(parse_selector("m"), None, 0, 100)
NAMES, VALUES = LabelsSpec(()), LabelsSpec((), name="__name__")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        running.samples[canonical_labels({"__name__": "m"})] = [(5, 1.5)]
        yield running


@pytest.fixture
def store(server: FakeServer) -> Iterator[RemoteStore]:
    made = RemoteStore(server.address, open_channel(server.address, None), (), SystemClock())
    yield made
    made.close()


def test_a_stream_is_the_stores_messages(store: RemoteStore) -> None:
    *_, last = store.select(SELECT, Context(WITHIN_S))
    assert last.body.counts is not None
    assert last.body.counts.samples == 1


def test_single_answers_are_streams_of_one(store: RemoteStore) -> None:
    (names,) = store.labels(NAMES, Context(WITHIN_S))
    (values,) = store.labels(VALUES, Context(None))
    assert (list(names.texts), list(values.texts)) == (["__name__"], ["m"])
    first, second = store.series(SeriesSpec(()), Context())
    assert (first.states is not None, second.series is not None) == (True, True)


def test_exemplars_are_a_stream_that_begins_with_states(store: RemoteStore) -> None:
    spec = ExemplarsSpec(parse_selector("m"), 0, 100)
    (first,) = store.exemplars(spec, Context(WITHIN_S))
    assert (first.states, first.series) == ((), None)


CALLS: dict[str, Callable[[RemoteStore, Context], object]] = {
    "stream": lambda store, caller: list(store.select(SELECT, caller)),
    "single": lambda store, caller: list(store.labels(NAMES, caller)),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_is_the_error_of_the_store(server: FakeServer, store: RemoteStore, call: str) -> None:
    server.fail = [HoleInRange("lost", partition=3)]
    with pytest.raises(HoleInRange, match="lost") as caught:
        CALLS[call](store, Context(WITHIN_S))
    assert caught.value.metadata == {"partition": "3"}


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_is_gone_is_unavailable(call: str) -> None:
    gone = RemoteStore("gone", open_channel("127.0.0.1:1", None), (), SystemClock())
    with pytest.raises(Unavailable) as caught:
        CALLS[call](gone, Context(WITHIN_S))
    assert caught.value.reason == "unreachable"
    gone.close()


def watching(store: RemoteStore, caller: Context) -> list[Unavailable]:
    """A quiet watch, to its end."""
    ended: list[Unavailable] = []
    try:
        list(store.watch(WatchSpec((Matcher(MatchType.EQUAL, "__name__", "m"),)), caller))
    except Unavailable as error:
        ended.append(error)
    return ended


def test_the_callers_deadline_is_the_stores(store: RemoteStore) -> None:
    assert [error.reason for error in watching(store, Context(0.2))] == ["deadline"]


def test_a_caller_that_leaves_ends_the_call(server: FakeServer, store: RemoteStore) -> None:
    caller = Context()
    ended: list[Unavailable] = []
    thread = threading.Thread(target=lambda: ended.extend(watching(store, caller)))
    thread.start()
    caller.wait_called(WITHIN_S)
    caller.leave()
    thread.join(WITHIN_S)
    assert [error.reason for error in ended] == ["cancelled"]


def test_a_caller_that_has_left_makes_no_call(store: RemoteStore) -> None:
    caller = Context()
    caller.leave()
    assert [error.reason for error in watching(store, caller)] == ["cancelled"]


def test_a_store_removed_during_a_call_is_an_error_with_a_retry_hint(server: FakeServer, store: RemoteStore) -> None:
    caller = Context()
    ended: list[Unavailable] = []
    thread = threading.Thread(target=lambda: ended.extend(watching(store, caller)))
    thread.start()
    caller.wait_called(WITHIN_S)
    store.close()
    thread.join(WITHIN_S)
    assert [(error.reason, worth_retrying(error)) for error in ended] == [("store_left", True)]


class SilentPoll:
    """A poll that ends without an answer."""

    def result(self) -> None:
        raise grpc.FutureCancelledError


def test_reads_of_a_store_that_does_not_answer_polls_any_more_end(server: FakeServer, store: RemoteStore) -> None:
    ended: list[Unavailable] = []
    caller = Context()
    thread = threading.Thread(target=lambda: ended.extend(watching(store, caller)))
    thread.start()
    caller.wait_called(WITHIN_S)
    store.finish_refresh(SilentPoll())
    assert thread.is_alive(), "one poll may be late"
    store.finish_refresh(SilentPoll())
    thread.join(WITHIN_S)
    assert [(error.reason, worth_retrying(error)) for error in ended] == [("store_silent", True)]
    store.refresh(WITHIN_S)
    assert list(store.select(SELECT, Context(WITHIN_S))), "it answers again"


@pytest.mark.parametrize("call", CALLS)
def test_a_store_removed_since_it_was_chosen_is_skipped(store: RemoteStore, call: str) -> None:
    store.refresh(WITHIN_S)
    assert store.states()
    store.close()
    store.refresh(WITHIN_S)
    assert not store.states()
    with pytest.raises(Unavailable, match="no longer in use") as caught:
        CALLS[call](store, Context(WITHIN_S))
    assert worth_retrying(caught.value)


@pytest.mark.parametrize(
    ("querier", "store", "read"),
    [("", "", True), ("", "trial", False), ("trial", "trial", True), ("trial", "", False), ("trial", "other", False)],
)
def test_a_querier_reads_stores_of_its_own_experiment_alone(
    server: FakeServer, querier: str, store: str, read: bool
) -> None:
    server.experiment = store
    made = RemoteStore(server.address, open_channel(server.address, None), (), SystemClock(), querier)
    made.refresh(WITHIN_S)
    assert (list(made.states()), made.apart) == (([0], False) if read else ([], True))
    made.close()


def test_an_experiment_shows_no_partition_to_a_querier_that_does_not_know_experiments(server: FakeServer) -> None:
    server.experiment = "trial"
    with open_channel(server.address, None) as channel:
        answer = reader_pb2_grpc.ReaderStub(channel).Coverage(reader_pb2.CoverageRequest())
    assert list(answer.partitions) == []
    assert [state.partition for state in coverage_states(answer)] == [0]
