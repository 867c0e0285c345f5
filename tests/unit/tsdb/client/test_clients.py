"""Both clients against a real gRPC server: the same answers, retries, errors and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

from support.fakes.fake_reader import TOPIC_ID, FakeServer
from tsdb.client import (
    AsyncClient,
    Client,
    InvalidRequest,
    OutOfCoverage,
    Overloaded,
    QueryInfo,
    ReadOptions,
    RequestLimits,
    Unauthenticated,
    Unavailable,
    WriteBatch,
    connect,
    connect_async,
)
from tsdb.model.labels import canonical_labels
from tsdb.v1 import ingest_pb2, reader_pb2

Run = Callable[..., Any]
UP = canonical_labels({"__name__": "up", "job": "a"})
DOWN = canonical_labels({"__name__": "down", "job": "b"})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def blocking(server: FakeServer, call: Run, **settings: Any) -> Any:
    with connect(server.address, **settings) as client:
        return call(client)


def awaited(server: FakeServer, call: Run, **settings: Any) -> Any:
    async def main() -> Any:
        async with connect_async(server.address, **settings) as client:
            answer: Awaitable[Any] = call(client)
            return await answer

    return asyncio.run(main())


@pytest.fixture(params=[blocking, awaited])
def run(request: pytest.FixtureRequest, server: FakeServer) -> Run:
    def with_server(call: Run, **settings: Any) -> Any:
        return request.param(server, call, **settings)

    return with_server


def two_series() -> WriteBatch:
    batch = WriteBatch()
    batch.add(UP, [1000, 2000, 3000], [1.0, np.nan, -0.0])
    batch.add(DOWN, 1000, 5.0)
    return batch


def test_what_was_written_is_selected(run: Run, server: FakeServer) -> None:
    written = run(lambda client: client.write(two_series()))
    assert (written.samples, written.requests, written.refused_samples) == (4, 1, 0)
    assert [(token.topic_id, token.record_offset) for token in written.tokens] == [(TOPIC_ID, 1)]
    options = ReadOptions(after=written.tokens)
    result = run(lambda client: client.select('{job=~".+"}', 1000, 3001, options=options))
    assert {series.canonical: series.ts_ms.tolist() for series in result.series} == {
        UP: [1000, 2000, 3000],
        DOWN: [1000],
    }
    assert server.received(reader_pb2.SelectRequest)[0].options.after == written.tokens


def test_a_large_batch_goes_in_several_requests_and_offenders_keep_their_place(run: Run, server: FakeServer) -> None:
    server.refuse = lambda labels: "too old" if labels == DOWN else ""
    written = run(lambda client: client.write(two_series(), partial=True, limits=RequestLimits(samples_max=2)))
    assert (written.samples, written.refused_samples, written.refused_series, written.requests) == (3, 1, 1, 2)
    assert [(offender.series_index, offender.message) for offender in written.offenders] == [(1, "too old")]
    assert len(server.received(ingest_pb2.WriteRequest)) == 2


def test_an_answer_in_many_frames_is_whole(run: Run, server: FakeServer) -> None:
    server.frame_samples = 1
    server.samples[UP] = [(ts_ms, float(ts_ms)) for ts_ms in range(20)]
    assert run(lambda client: client.select("up", 0, 100)).samples == 20


@pytest.mark.parametrize("frames", [0, 1, 2, 3])
def test_an_answer_cut_off_is_asked_for_again(run: Run, server: FakeServer, frames: int) -> None:
    server.samples[UP] = [(1, 1.0)]
    server.cut_after = [frames]
    assert run(lambda client: client.select("up", 0, 100)).samples == 1
    assert len(server.requests) == 2


def failure(run: Run, call: Callable[[Any], Any]) -> Unavailable:
    """The error of a call whose server always fails. On a busy machine a short call may end by its time alone."""
    for timeout_s in (0.3, 3.0, 30.0):
        with pytest.raises(Unavailable) as failed:
            run(call, timeout_s=timeout_s)
        if failed.value.reason != "deadline":
            break
    return failed.value


def test_a_server_that_always_cuts_is_an_error(run: Run, server: FakeServer) -> None:
    server.samples[UP] = [(1, 1.0)]
    server.cut_after = [2] * 1000
    assert failure(run, lambda client: client.select("up", 0, 100)).reason == "answer_cut"


def test_what_passes_by_itself_is_retried_and_the_rest_is_not(run: Run, server: FakeServer) -> None:
    server.fail = [Unavailable("replaying"), Overloaded("queue full", retry_after_s=0.01)]
    assert run(lambda client: client.write(two_series())).samples == 4
    assert len(server.requests) == 3
    server.fail = [OutOfCoverage("before coverage", reason="before_coverage", coverage_start_ms=5)]
    with pytest.raises(OutOfCoverage) as refused:
        run(lambda client: client.select("up", 0, 1))
    assert (refused.value.reason, refused.value.metadata) == ("before_coverage", {"coverage_start_ms": "5"})
    assert len(server.requests) == 4


def test_a_call_that_an_ending_server_drops_is_retried(run: Run, server: FakeServer) -> None:
    server.drops = 2
    assert run(lambda client: client.write(two_series())).samples == 4
    assert len(server.requests) == 3
    server.drops = 1
    assert run(lambda client: client.select("up", 0, 10_000)).samples == 3
    server.drops = 1000
    dropped = failure(run, lambda client: client.coverage())
    assert (dropped.reason, "dropped the call, it may be ending" in dropped.message) == ("call_dropped", True)


def test_a_hint_beyond_the_timeout_ends_the_call_at_once(run: Run, server: FakeServer) -> None:
    server.fail = [Unavailable("replaying", retry_after_s=3600)]
    with pytest.raises(Unavailable, match="replaying"):
        run(lambda client: client.coverage())
    assert len(server.requests) == 1


def test_an_asynchronous_client_can_be_awaited_too(server: FakeServer) -> None:
    async def main() -> int:
        client = await connect_async(server.address)
        try:
            return len(await client.coverage())
        finally:
            await client.close()

    assert asyncio.run(main()) == 1


def test_a_call_of_a_closed_client_is_an_error_of_ours(server: FakeServer) -> None:
    client = connect(server.address)
    client.close()
    with pytest.raises(Unavailable, match="connect again") as closed:
        client.coverage()
    assert closed.value.reason == "client_closed"
    with pytest.raises(Unavailable, match="connect again"):
        list(client.watch("up"))

    async def main() -> None:
        other = await connect_async(server.address)
        await other.close()
        with pytest.raises(Unavailable, match="connect again"):
            await other.coverage()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda client: client.select("up", 1.5, 2), "select"),
        (lambda client: client.select("up", 1 << 70, 2), "select"),
        (lambda client: client.select("up", "soon", 2), "select"),
        (lambda client: client.select("up", 1, 2, last_n=-1), "select"),
        (lambda client: client.select(7, 1, 2), "select"),
        (lambda client: client.select(None, 1, 2, series_ids=["x"]), "select"),
        (lambda client: client.select("up", 1, 2, options=7), "select"),
        (lambda client: client.select("up", 1, 2, timeout_s="soon"), "timeout"),
        (lambda client: client.series("up", start_ms="x"), "series"),
        (lambda client: client.series_groups("up", [1]), "series_groups"),
        (lambda client: client.label_names("up", end_ms=0.5), "label_names"),
        (lambda client: client.cardinality("up", top=-1), "cardinality"),
        (lambda client: client.cancel_query(-1), "cancel_query"),
        (lambda client: client.label_values(None, None, values_max="x"), "label_values"),
    ],
)
def test_arguments_that_cannot_travel_are_an_error_of_ours(run: Run, call: Any, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what) as refused:
        run(call)
    assert refused.value.reason == "bad_argument"


@pytest.mark.parametrize("address", [None, 7, "", "host", "host:0", "host:port", "http://host:1", "a b:1"])
def test_what_is_no_address_is_an_error_of_ours(address: Any) -> None:
    with pytest.raises(InvalidRequest):
        connect(address)


def test_nobody_listening_is_unavailable_after_the_timeout(run: Run, server: FakeServer) -> None:
    server.__exit__(None, None, None)
    with pytest.raises(Unavailable):
        run(lambda client: client.coverage(), timeout_s=0.3)


def test_the_token_travels_with_every_call(run: Run, server: FakeServer) -> None:
    run(lambda client: client.coverage(), token="s3cret")
    run(lambda client: client.write(two_series()), token="s3cret")
    assert [metadata["authorization"] for metadata in server.metadata] == ["Bearer s3cret"] * 2
    server.fail = [Unauthenticated("the bearer token is not valid here", reason="token_wrong")]
    with pytest.raises(Unauthenticated) as refused:
        run(lambda client: client.coverage(), token="s3cret")
    assert "s3cret" not in str(refused.value)


def test_series_labels_and_groups_are_read(run: Run, server: FakeServer) -> None:
    server.samples[UP] = [(5, 1.0), (9, 1.0)]
    server.samples[DOWN] = [(7, 1.0)]
    found = run(lambda client: client.series())
    assert [(info.canonical, info.first_seen_ms, info.last_seen_ms) for info in found] == [(DOWN, 7, 7), (UP, 5, 9)]
    groups = run(lambda client: client.series_groups(None, ["job", "absent"]))
    assert [(group.values, group.series) for group in groups] == [(("a", ""), 1), (("b", ""), 1)]
    assert run(lambda client: client.label_names()) == ["__name__", "job"]
    assert run(lambda client: client.label_values("job", "up")) == ["a"]
    assert [state.coverage_start_ms for state in run(lambda client: client.coverage())] == [1000]


def test_rows_over_a_rate_are_sent_again_and_never_given_up(run: Run, server: FakeServer) -> None:
    server.over_rate = [10, 20]
    written = run(lambda client: client.write(two_series(), partial=True))
    assert (written.samples, written.refused_samples) == (4, 0)
    assert len(server.received(ingest_pb2.WriteRequest)) == 3
    server.over_rate = [60_000]
    with pytest.raises(Overloaded, match="source a sends more than 5 samples a second") as refused:
        run(lambda client: client.write(two_series(), partial=True))
    assert refused.value.reason == "source_samples_limit"


def test_cardinality_is_read(run: Run, server: FakeServer) -> None:
    server.samples[UP], server.samples[DOWN] = [(5, 1.0)], [(7, 1.0)]
    server.samples[canonical_labels({"__name__": "up", "job": "c"})] = [(7, 1.0)]
    found = run(lambda client: client.cardinality(top=1))
    assert (found.series, found.groups_total) == (3, 2)
    assert [(group.labels, group.series, group.values) for group in found.groups] == [({"__name__": "up"}, 2, None)]
    with pytest.raises(InvalidRequest, match="by is 'row'; it must be one of metric, label, pair, source"):
        run(lambda client: client.cardinality(by=cast(Any, "row")))


def test_running_queries_are_listed_and_cancelled(run: Run, server: FakeServer) -> None:
    server.queries = [
        reader_pb2.RunningQuery(number=3, kind="query", text="up", started_ms=5, age_s=0.5, peer="10.0.0.1:5000")
    ]
    assert run(lambda client: client.queries()) == [QueryInfo(3, "query", "up", 5, 0.5, "10.0.0.1:5000")]
    assert run(lambda client: client.cancel_query(3)) is True
    assert run(lambda client: client.cancel_query(3)) is False
    assert run(lambda client: client.queries()) == []


def test_a_series_answer_cut_off_is_asked_for_again(run: Run, server: FakeServer) -> None:
    server.samples[UP] = [(5, 1.0)]
    server.cut_after = [0, 1]
    assert len(run(lambda client: client.series())) == 1
    assert len(server.requests) == 3


def test_grouping_by_nothing_is_refused(run: Run) -> None:
    with pytest.raises(InvalidRequest, match="no label"):
        run(lambda client: client.series_groups(None, []))


def watch_frame(offset: int) -> reader_pb2.WatchResponse:
    response = reader_pb2.WatchResponse(
        topic_id=TOPIC_ID,
        last_record_offset=offset,
        record_offsets=np.array([offset], "<i8").tobytes(),
        series_ids=np.array([9], "<u8").tobytes(),
        ts_ms=np.array([offset], "<i8").tobytes(),
        values=np.array([1.0]).tobytes(),
    )
    response.series.series_ids = response.series_ids
    response.series.labels = UP
    response.series.label_lengths = np.array([len(UP)], "<u4").tobytes()
    return response


def offsets_blocking(client: Client, **settings: Any) -> list[int]:
    return [int(batch.record_offsets[0]) for batch in client.watch("up", **settings)]


async def offsets_awaited(client: AsyncClient, **settings: Any) -> list[int]:
    return [int(batch.record_offsets[0]) async for batch in client.watch("up", **settings)]


def offsets(client: Client | AsyncClient, **settings: Any) -> Any:
    return offsets_blocking(client, **settings) if isinstance(client, Client) else offsets_awaited(client, **settings)


def test_a_watch_resumes_after_the_last_record_seen(run: Run, server: FakeServer) -> None:
    server.watch_frames = [
        [watch_frame(3), watch_frame(4), Unavailable("restarting")],
        [],
        [watch_frame(5), OutOfCoverage("too far behind", reason="watch_ring")],
    ]
    with pytest.raises(OutOfCoverage, match="too far behind"):
        run(lambda client: offsets(client))
    asked = [getattr(request, "from")[0].record_offset for request in server.received(reader_pb2.WatchRequest)]
    assert asked == [0, 4, 4]


def test_a_watch_of_a_given_duration_ends_by_itself(run: Run, server: FakeServer) -> None:
    for duration_s in (0.4, 4.0, 40.0):  # On a busy machine the shorter ones may end before the first frame.
        server.watch_frames = [[watch_frame(3), watch_frame(4), Unavailable("restarting")]]
        seen = run(lambda client, duration_s=duration_s: offsets(client, duration_s=duration_s))
        if seen == [3, 4]:
            return
        assert [3, 4][: len(seen)] == seen
    pytest.fail("a watch of 40 s saw nothing")


def test_a_watch_that_cannot_reconnect_gives_up(run: Run, server: FakeServer) -> None:
    server.watch_frames = [[watch_frame(3), Unavailable("restarting", retry_after_s=3600)]]
    with pytest.raises(Unavailable, match="restarting"):
        run(lambda client: offsets(client))
