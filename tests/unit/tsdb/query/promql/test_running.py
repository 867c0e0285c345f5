"""The running queries of a process: one list for both servers, and a cancel that ends a query over either."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
import pytest

from support.api.prometheus_server import NOW_MS, api_server
from support.counters import sample
from support.fakes.fake_stores import FakeStore, FakeStores, state
from support.servers.queriers import Context, context, sources_over
from support.servers.seams import END_MS, Seam
from tsdb.answer.spec import SelectSpec
from tsdb.model.errors import InvalidRequest, Unavailable, worth_retrying
from tsdb.query.promql.running import TEXT_CHARS_MAX, RunningQueries
from tsdb.query.service import QuerierService
from tsdb.reader.read_call import Caller, SelectLimits
from tsdb.v1 import reader_pb2

WITHIN_S = 60.0
LIST = reader_pb2.QueriesRequest()


class Peer(Context):
    """A caller whose connection has an address."""

    def peer(self) -> str:
        return "ipv6:%5B::1%5D:9090"


class WaitingStore(FakeStore):
    """A read waits until its call ends."""

    def __init__(self) -> None:
        super().__init__("waiting", [state(0)])
        self.begun = threading.Event()

    def select(self, spec: SelectSpec, caller: Caller) -> Any:
        ended = threading.Event()
        if caller.add_callback(ended.set):
            self.begun.set()
            assert ended.wait(WITHIN_S), "the call was never ended"
        raise Unavailable("the caller left", reason="cancelled")


def cancel(service: QuerierService, number: int) -> bool:
    return service.CancelQuery(reader_pb2.CancelQueryRequest(number=number), context()).found


def test_a_query_over_grpc_is_listed_until_its_answer_ends() -> None:
    seam = Seam()
    answer = seam.service.Query(
        reader_pb2.QueryRequest(query="m_1", start_ms=END_MS, end_ms=END_MS), cast(grpc.ServicerContext, Peer())
    )
    assert next(answer).HasField("header")
    (listed,) = seam.service.Queries(LIST, context()).queries
    assert (listed.number, listed.kind, listed.text, listed.peer) == (1, "grpc_query", "m_1", "[::1]:9090")
    assert listed.started_ms > 0 <= listed.age_s
    assert sample("tsdb_query_running") == 1
    list(answer)
    assert not seam.service.Queries(LIST, context()).queries
    assert not cancel(seam.service, 1)


def test_a_query_whose_caller_leaves_is_off_the_list() -> None:
    seam = Seam()
    answer = cast(Any, seam.service.Query(reader_pb2.QueryRequest(query="m_1"), context()))
    next(answer)
    answer.close()
    assert not seam.service.Queries(LIST, context()).queries
    assert sample("tsdb_query_running") == 0


def test_a_cancel_ends_an_answer_that_is_being_sent() -> None:
    seam = Seam()
    before = sample("tsdb_query_ended_early_total", reason="canceled")
    answer = seam.service.Query(reader_pb2.QueryRequest(query="vector(1)"), context())
    next(answer)
    assert cancel(seam.service, 1)
    with pytest.raises(Unavailable, match="cancelled by an operator") as ended:
        next(answer)
    assert (ended.value.reason, worth_retrying(ended.value)) == ("cancelled", False)
    assert sample("tsdb_query_ended_early_total", reason="canceled") == before + 1


def test_a_cancel_ends_the_reads_of_a_query() -> None:
    store = WaitingStore()
    service = QuerierService(sources_over(FakeStores(store), None, window_ms=400), SelectLimits())
    request = reader_pb2.QueryRequest(query="m_1", start_ms=100, end_ms=100)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: list(service.Query(request, context())))
        assert store.begun.wait(WITHIN_S)
        assert cancel(service, 1)
        with pytest.raises(Unavailable, match="cancelled by an operator"):
            asked.result(WITHIN_S)


def test_an_error_without_a_cancel_stays_as_it_is() -> None:
    caller = Context()
    caller.active = False
    with pytest.raises(Unavailable, match="no longer waits"):
        list(Seam().service.Query(reader_pb2.QueryRequest(query="m_1"), cast(grpc.ServicerContext, caller)))


def test_a_query_over_http_is_listed_and_cancelled_over_grpc() -> None:
    with api_server() as served, ThreadPoolExecutor(1) as pool:
        service = QuerierService(Seam().sources, SelectLimits(), running=served.api.running)
        served.samples.add({"__name__": "up"}, [(NOW_MS, 1.0)])
        served.samples.gate = threading.Event()
        asked = pool.submit(served.get, "query", query="up")
        assert served.samples.reading.wait(WITHIN_S)
        (listed,) = service.Queries(LIST, context()).queries
        assert (listed.kind, listed.text) == ("query", "up")
        assert listed.peer.startswith("127.0.0.1:")
        assert cancel(service, listed.number)
        assert asked.result(WITHIN_S).failure[:2] == (499, "canceled")


def test_a_long_text_is_cut_in_the_list() -> None:
    queries = RunningQueries()
    query = queries.open("query", 1.0)
    query.text = "x" * (TEXT_CHARS_MAX + 1)
    queries.add(query)
    assert len(queries.to_proto().queries[0].text) == TEXT_CHARS_MAX
    queries.remove(query)
    assert queries.all() == []


def test_a_store_has_no_queries() -> None:
    service = Seam().served.service
    with pytest.raises(InvalidRequest, match="ask a querier"):
        service.Queries(LIST, context())
    with pytest.raises(InvalidRequest, match="ask a querier"):
        service.CancelQuery(reader_pb2.CancelQueryRequest(number=1), context())
