"""A querier that ends refuses reads that wait for records in stores, and finishes all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from support.fakes.fake_stores import FakeStore, FakeStores, state
from support.servers.queriers import TOPIC_ID, Context, querier_over
from tsdb.model.errors import Unavailable, worth_retrying
from tsdb.query.service import QuerierService
from tsdb.reader.read_call import Caller, ReadCalls
from tsdb.v1 import common_pb2, reader_pb2

WITHIN_S = 60.0
M = common_pb2.Matcher(name="__name__", value="m")
AFTER = reader_pb2.ReadOptions(after=[common_pb2.Token(topic_id=TOPIC_ID, partition=0, record_offset=1 << 40)])


class WaitingStore(FakeStore):
    """Answers nothing until the caller's call ends, as while a record has not arrived."""

    def __init__(self) -> None:
        super().__init__("waiting", [state(0)])
        self.begun = threading.Event()

    def wait(self, spec: Any, caller: Caller) -> Iterator[Any]:
        ended = threading.Event()
        if caller.add_callback(ended.set):
            self.begun.set()
            assert ended.wait(WITHIN_S), "the call was never ended"
        raise Unavailable("the caller left", reason="cancelled")
        yield

    select = series = labels = cardinality = watch = wait  # type: ignore[assignment]  # any kind of read


READS: dict[str, Callable[[QuerierService, Any], object]] = {
    "Select": lambda querier, caller: list(
        querier.Select(reader_pb2.SelectRequest(matchers=[M], start_ms=0, end_ms=100, options=AFTER), caller)
    ),
    "Series": lambda querier, caller: list(
        querier.Series(reader_pb2.SeriesRequest(matchers=[M], options=AFTER), caller)
    ),
    "LabelNames": lambda querier, caller: querier.LabelNames(reader_pb2.LabelNamesRequest(options=AFTER), caller),
    "LabelValues": lambda querier, caller: querier.LabelValues(
        reader_pb2.LabelValuesRequest(name="job", options=AFTER), caller
    ),
    "Cardinality": lambda querier, caller: querier.Cardinality(reader_pb2.CardinalityRequest(options=AFTER), caller),
    "Watch": lambda querier, caller: list(querier.Watch(reader_pb2.WatchRequest(matchers=[M]), caller)),
}


@pytest.mark.parametrize("read", READS)
def test_a_read_that_waits_for_its_stores_is_refused_at_once(read: str) -> None:
    store, calls = WaitingStore(), ReadCalls()
    querier = querier_over(FakeStores(store), None, window_ms=400, calls=calls)
    errors: list[Unavailable] = []

    def run() -> None:
        try:
            READS[read](querier, Context())
        except Unavailable as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert store.begun.wait(WITHIN_S)
    calls.drain.close()
    thread.join(WITHIN_S)
    assert [(error.reason, worth_retrying(error)) for error in errors] == [("draining", True)]


@pytest.mark.parametrize("read", READS)
def test_a_wait_that_begins_after_the_end_is_refused(read: str) -> None:
    calls = ReadCalls()
    calls.drain.close()
    with pytest.raises(Unavailable, match="ask another replica"):
        READS[read](querier_over(FakeStores(WaitingStore()), None, window_ms=400, calls=calls), Context())


def test_a_read_whose_stores_have_answered_is_finished() -> None:
    calls = ReadCalls()
    querier = querier_over(FakeStores(FakeStore("a", [state(0)])), None, window_ms=400, calls=calls)
    request = reader_pb2.SeriesRequest(matchers=[M], options=AFTER)
    stream = querier.Series(request, cast(Any, Context()))
    assert next(stream).HasField("header")
    calls.drain.close()
    assert [message.WhichOneof("frame") for message in stream] == ["series"]
