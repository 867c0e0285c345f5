"""The Reader service over real heads: every answer against a twin, every refusal by code, reason and details.

One suite for a store and for a querier over that store: their answers are equal while memory reaches the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc
import numpy as np
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_status import rpc_status

from support.data.feeder import Feeder
from support.data.heads import Sample, bits, canonical_of, id_of
from support.fakes.fake_history import FakeHistory
from support.oracles.head_twin import HeadTwin
from support.servers.logs import LogFactory
from support.servers.node import Node, make_topics
from support.servers.querier_node import QuerierNode
from tsdb.client import ReadOptions, SelectResult
from tsdb.client.select import AGGREGATIONS
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher, MatchType
from tsdb.ops.grpc.errors import DOMAIN
from tsdb.reader.read_call import SelectLimits
from tsdb.selector.pattern import REGEX_BYTES_MAX
from tsdb.v1 import common_pb2, reader_pb2

MINUTE_MS = 60_000
MINUTES = 200
NUMBERS = range(12)
EVERYTHING = '{__name__=~"m_.*"}'
LIMITS = SelectLimits(series_max=50, samples_max=20_000, bytes_max=1 << 20)


def partition_of(number: int) -> int:
    return number // 3 % 2


class Reader:
    """A served Reader: a client, a stub, and the id of the log's topic."""

    def __init__(self, server: Node | QuerierNode, topic_id: str) -> None:
        self.client = server.client
        self.stub = server.stub
        self.topic_id = topic_id


class Served:
    """A reader with known contents: minutes of samples, out of order, twice, late, NaN and -0.0 among them."""

    def __init__(self, factory: LogFactory) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        log = make_topics(factory)
        self.feeder = Feeder(log)
        rng = np.random.default_rng(5)
        for partition in (0, 1):
            mine = [number for number in NUMBERS if partition_of(number) == partition]
            self.feeder.announce(mine, partition, self.now_ms)
            records = []
            for minute in range(MINUTES):
                broker_ms = self.now_ms - (MINUTES - minute) * MINUTE_MS
                records.append((broker_ms, list(_samples(mine, broker_ms, rng))))
            self.feeder.many(partition, records)
        self.store = Node(log, limits=LIMITS)
        self.node = Reader(self.store, self.store.store.topic_id)

    @property
    def since_ms(self) -> int:
        return self.now_ms - (MINUTES + 100) * MINUTE_MS

    def twin(self, number: int) -> HeadTwin:
        return self.feeder.twins[partition_of(number)]

    def want(self, start_ms: int, end_ms: int, numbers: Any = NUMBERS) -> dict[int, dict[int, float]]:
        found: dict[int, dict[int, float]] = {}
        for number in numbers:
            found.update(self.twin(number).samples([number], start_ms, end_ms))
        return found


def _samples(numbers: list[int], broker_ms: int, rng: np.random.Generator) -> Iterator[Sample]:
    for number in numbers:
        yield number, broker_ms - 10, float(np.round(rng.normal(), 2))
        if rng.random() < 0.3:
            late_ms = int(rng.integers(1, 90 * MINUTE_MS))
            yield number, broker_ms - late_ms, float(rng.choice([np.nan, -0.0, np.inf, 1e-9]))
        if rng.random() < 0.2:
            yield number, broker_ms - 10, float(rng.integers(100))


@pytest.fixture(scope="module", params=["store", "querier"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with LogFactory(f"sqlite:///{tmp_path_factory.mktemp('reader')}/log.db", "") as factory:
        made = Served(factory)
        with made.store.wait_ready_on_entry():
            if request.param == "store":
                yield made
                return
            topic_id = made.store.store.topic_id
            # The querier has the default limits; the store's limits apply anyway.
            with QuerierNode([made.store.address], FakeHistory(), topic_id=topic_id, partitions=2) as querier:
                made.node = Reader(querier, topic_id)
                yield made


def answered(result: SelectResult) -> dict[int, dict[int, float]]:
    """{number: {ts: value}}, and a check that series come by partition and id, each with its own labels."""
    numbers = {canonical_of(number): number for number in NUMBERS}
    found = {}
    for series in result.series:
        number = numbers[series.canonical]
        assert series.series_id == id_of(number)
        assert (np.diff(series.ts_ms) > 0).all()
        found[number] = dict(zip(series.ts_ms.tolist(), series.values.tolist(), strict=True))
    places = [(partition_of(numbers[series.canonical]), series.series_id) for series in result.series]
    assert places == sorted(places)
    return found


RANGES = {
    "everything": lambda s: (s.since_ms, s.now_ms + 1),
    "one instant": lambda s: (s.now_ms - 50 * MINUTE_MS - 10, s.now_ms - 50 * MINUTE_MS - 9),
    "the newest": lambda s: (s.now_ms - 7 * MINUTE_MS, s.now_ms + MINUTE_MS),
    "sealed and open": lambda s: (s.now_ms - 95 * MINUTE_MS + 7, s.now_ms - 3 * MINUTE_MS),
    "before all": lambda s: (s.since_ms - 10_000, s.since_ms),
}


@pytest.mark.parametrize("encoding", ["raw", "columns"])
@pytest.mark.parametrize("span", RANGES)
def test_select_gives_exactly_the_samples_of_the_range(served: Served, span: str, encoding: str) -> None:
    start_ms, end_ms = RANGES[span](served)
    result = served.node.client.select(EVERYTHING, start_ms, end_ms, encoding=encoding)
    assert bits(answered(result)) == bits(served.want(start_ms, end_ms))


@pytest.mark.parametrize(
    ("selector", "numbers"),
    [
        ("m_1", [1, 4, 7, 10]),
        ('m_1{instance="i2"}', [7]),
        ('{instance=~"i[01]",__name__!="m_0"}', [1, 2, 4, 5]),
        ('{job="test",instance!~"i[012]"}', [9, 10, 11]),
        ('m_2{absent=""}', [2, 5, 8, 11]),
        ("m_9", []),
    ],
)
def test_matchers_choose_as_prometheus_does(served: Served, selector: str, numbers: list[int]) -> None:
    span = RANGES["sealed and open"](served)
    result = served.node.client.select(selector, *span)
    assert bits(answered(result)) == bits(served.want(*span, numbers))


# Each chooses series 7 of m_1.
LARGE_SELECTORS = {
    "values": 'm_1{instance=~"' + "|".join(f"host-of-a-list-{row}:9100" for row in range(20_000)) + '|i2"}',
    "a common end": 'm_1{instance=~"(' + "|".join(f"host-{row}" for row in range(20_000)) + '|i)2"}',
    "values with points": 'm_1{instance=~"' + "|".join(f"10.0.{row}.7:9100" for row in range(400)) + '|i2"}',
    "refused values": 'm_1{instance!~"' + "|".join(f"host-{row}" for row in range(4_000)) + '|i[013-9]|i1."}',
    "matchers": "m_1{" + "".join(f'absent_{row}!="x",' for row in range(500)) + 'instance="i2"}',
    "repetitions": 'm_1{instance=~"i2|.{10,1000}"}',
}


@pytest.mark.parametrize("selector", LARGE_SELECTORS.values(), ids=LARGE_SELECTORS)
def test_a_selector_may_be_as_large_as_a_dashboard_makes_it(served: Served, selector: str) -> None:
    client, span = served.node.client, RANGES["sealed and open"](served)
    assert list(answered(client.select(selector, *span))) == [7]
    assert [series.labels["instance"] for series in client.series(selector)] == ["i2"]
    assert client.label_values("instance", selector) == ["i2"]


def test_series_ids_choose_in_place_of_matchers_and_unknown_ones_match_nothing(served: Served) -> None:
    span = RANGES["the newest"](served)
    result = served.node.client.select(None, *span, series_ids=[id_of(7), id_of(3), 12345])
    assert bits(answered(result)) == bits(served.want(*span, [3, 7]))


def test_labels_are_left_out_on_request(served: Served) -> None:
    result = served.node.client.select("m_1", *RANGES["the newest"](served), labels=False)
    assert set(result.canonical) == {b""}
    assert {int(i) for i in result.series_ids} == {id_of(number) for number in (1, 4, 7, 10)}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_steps_aggregate_their_samples(served: Served, aggregation: str) -> None:
    start_ms, end_ms = served.now_ms - 100 * MINUTE_MS - 333, served.now_ms
    step_ms = 7 * MINUTE_MS + 11
    result = served.node.client.select(EVERYTHING, start_ms, end_ms, step_ms=step_ms, agg=aggregation)
    code = 1 + AGGREGATIONS.index(aggregation)
    with np.errstate(all="ignore"):
        want = {n: served.twin(n).steps([n], start_ms, end_ms, step_ms, code)[n] for n in NUMBERS}
    got = answered(result)
    assert {n: list(by_time) for n, by_time in got.items()} == {n: list(by_time) for n, by_time in want.items()}
    for number in NUMBERS:
        np.testing.assert_array_equal(list(got[number].values()), list(want[number].values()))


def test_last_n_gives_the_newest_of_each_series(served: Served) -> None:
    span = RANGES["everything"](served)
    result = served.node.client.select(EVERYTHING, *span, last_n=3)
    want = {number: dict(list(by_time.items())[-3:]) for number, by_time in served.want(*span).items()}
    assert bits(answered(result)) == bits(want)


def test_only_the_requested_partitions_answer(served: Served) -> None:
    span = RANGES["the newest"](served)
    result = served.node.client.select(EVERYTHING, *span, options=ReadOptions(partitions=[1]))
    assert [state.partition for state in result.partitions] == [1]
    assert bits(answered(result)) == bits(served.want(*span, [n for n in NUMBERS if partition_of(n) == 1]))


def test_a_partial_answer_has_the_orders_of_samples_below_coverage(served: Served) -> None:
    start_ms, end_ms = RANGES["everything"](served)
    result = served.node.client.select(EVERYTHING, start_ms, end_ms, partial=True)
    assert result.orders is not None
    assert bits(answered(result)) == bits(served.want(start_ms, end_ms))
    coverage = {state.partition: state.coverage_start_ms for state in result.partitions}
    numbers = {canonical_of(number): number for number in NUMBERS}
    for index in range(len(result)):
        number = numbers[result.canonical[index]]
        for at in range(int(result.starts[index]), int(result.starts[index + 1])):
            ts_ms, order = int(result.ts_ms[at]), int(result.orders[at])
            newest = served.twin(number).orders(number, ts_ms)[-1][0]
            assert order == (newest if ts_ms < coverage[partition_of(number)] else -1)


@pytest.mark.parametrize("encoding", [reader_pb2.RAW, reader_pb2.COLUMNS])
def test_frames_come_in_their_order_and_the_trailer_counts_them(
    served: Served, encoding: reader_pb2.Encoding.ValueType
) -> None:
    start_ms, end_ms = RANGES["everything"](served)
    matchers = [common_pb2.Matcher(name="__name__", value="m_.*", type=common_pb2.Matcher.REGEX)]
    request = reader_pb2.SelectRequest(matchers=matchers, start_ms=start_ms, end_ms=end_ms, encoding=encoding)
    messages = list(served.node.stub.Select(request))
    assert [number for number, message in enumerate(messages) if message.HasField("header")] == [0]
    assert [number for number, message in enumerate(messages) if message.HasField("trailer")] == [len(messages) - 1]
    blocks = [block for message in messages for block in message.series]
    assert [block.partition for block in blocks] == [0, 1]
    ids = [np.frombuffer(block.series_ids, "<u8") for block in blocks]
    assert all((np.diff(part.astype(object)) > 0).all() for part in ids)
    raw_frames = [frame for message in messages for frame in message.raw]
    columns = [frame for message in messages for frame in message.columns]
    for frames in (raw_frames, columns):
        assert [frame.partition for frame in frames] == sorted(frame.partition for frame in frames)
    trailer = messages[-1].trailer
    assert trailer.series == sum(map(len, ids)) == len(NUMBERS)
    raw = sum(len(frame.ts_ms) // 8 for frame in raw_frames)
    if encoding == reader_pb2.RAW:
        assert trailer.samples == raw
        assert trailer.bytes == raw * 16 + 4 * len(NUMBERS)
    else:
        assert trailer.samples > raw
        assert columns, "nothing was sealed: the test would not test much"


def test_the_header_states_the_range_of_each_partition(served: Served) -> None:
    result = served.node.client.select("m_1", *RANGES["the newest"](served))
    assert [state.partition for state in result.partitions] == [0, 1]
    for state in result.partitions:
        assert state.topic_id == served.node.topic_id
        assert (state.applied_offset, state.next_offset, state.high_watermark) == (MINUTES - 1, MINUTES, MINUTES)
        assert (state.since_offset, state.lag_records, state.lag_ms) == (0, 0, 0)
        assert state.from_start
        assert state.ready
        assert state.coverage_start_ms < served.now_ms
        assert state.watermark_ms == served.now_ms - MINUTE_MS
        assert list(state.holes) == []
        assert (state.series, state.samples, state.bytes) == (0, 0, 0), "told by coverage alone"
    told = served.node.client.coverage()
    assert all((state.series, state.samples > MINUTES, state.bytes > 0) == (6, True, True) for state in told)
    assert list(map(_steady, told)) == list(map(_steady, result.partitions))


def _steady(state: common_pb2.PartitionState) -> str:
    """The state without its sizes."""
    for field in ("series", "samples", "bytes"):
        state.ClearField(field)
    return str(state)


def test_series_have_their_first_and_last_sample_times(served: Served) -> None:
    found = {info.canonical: info for info in served.node.client.series(EVERYTHING)}
    assert set(found) == {canonical_of(number) for number in NUMBERS}
    for number in NUMBERS:
        times = served.twin(number).times(number)
        info = found[canonical_of(number)]
        assert (info.first_seen_ms, info.last_seen_ms) == (times[0], times[-1])


def test_series_of_a_range_are_those_with_a_sample_in_it(served: Served) -> None:
    at_ms = served.now_ms - 50 * MINUTE_MS
    found = served.node.client.series(EVERYTHING, start_ms=at_ms - 5, end_ms=at_ms + 5)
    want = {canonical_of(number) for number in served.want(at_ms - 5, at_ms + 5)}
    assert {info.canonical for info in found} == want
    assert served.node.client.series(EVERYTHING, end_ms=served.since_ms) == []
    assert len(served.node.client.series(start_ms=served.since_ms)) == len(NUMBERS)


def test_series_are_counted_per_group(served: Served) -> None:
    groups = served.node.client.series_groups(EVERYTHING, ["__name__", "absent"])
    assert {(group.values, group.series) for group in groups} == {((f"m_{n}", ""), 4) for n in range(3)}


def test_label_names_and_values_are_those_of_matching_series(served: Served) -> None:
    client = served.node.client
    assert client.label_names() == ["__name__", "instance", "job"]
    assert client.label_values("instance") == ["i0", "i1", "i2", "i3"]
    assert client.label_values("instance", 'm_1{instance!="i1"}') == ["i0", "i2", "i3"]
    assert client.label_values("absent") == []


def test_cardinality_counts_every_series_once(served: Served) -> None:
    client = served.node.client
    metrics = client.cardinality(by="metric")
    assert (metrics.series, metrics.groups_total) == (len(NUMBERS), 3)
    assert [(group.labels, group.series) for group in metrics.groups] == [({"__name__": f"m_{n}"}, 4) for n in range(3)]
    labels = client.cardinality(by="label")
    rows = [(next(iter(group.labels)), group.values, group.series) for group in labels.groups]
    assert rows == [("instance", 4, 12), ("__name__", 3, 12), ("job", 1, 12)]
    (pair,) = client.cardinality(by="pair", top=1).groups
    assert (pair.labels, pair.series) == ({"job": "test"}, 12)
    sources = client.cardinality('m_1{instance!="i0"}', by="source")
    assert sources.series == 3
    assert [(group.labels["instance"], group.series) for group in sources.groups] == [("i1", 1), ("i2", 1), ("i3", 1)]
    assert {state.partition for state in sources.partitions} == {0, 1}


class LateError(Exception):
    """The caller's own deadline ended the call before an answer of the server."""


class Refusal:
    """A refused call as any gRPC client sees it."""

    def __init__(self, error: grpc.RpcError) -> None:
        status = rpc_status.from_call(cast(Any, error))
        if status is None and cast(Any, error).code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise LateError
        assert status is not None, f"no details: {error}"
        self.code = grpc.StatusCode(next(code.value for code in grpc.StatusCode if code.value[0] == status.code))
        self.message = status.message
        self.retry = False
        for detail in status.details:
            info, retry = ErrorInfo(), RetryInfo()
            if detail.Unpack(info):
                self.domain, self.reason, self.metadata = info.domain, info.reason, dict(info.metadata)
            self.retry = self.retry or detail.Unpack(retry)


def refusal(call: Callable[[], Any]) -> Refusal:
    def to_its_end() -> None:
        answer = call()
        if hasattr(answer, "__next__"):
            list(answer)

    with pytest.raises(grpc.RpcError) as caught:
        to_its_end()
    return Refusal(caught.value)


M1 = common_pb2.Matcher(name="__name__", value="m_1")
NONEMPTY = common_pb2.Matcher(name="absent", value="x", type=common_pb2.Matcher.NOT_EQUAL)


def regex(pattern: str) -> common_pb2.Matcher:
    return common_pb2.Matcher(name="__name__", value=pattern, type=common_pb2.Matcher.REGEX)


def token(record_offset: int = 0, partition: int = 0, topic_id: str = "") -> common_pb2.Token:
    return common_pb2.Token(topic_id=topic_id, partition=partition, record_offset=record_offset)


def watch_from(*tokens: common_pb2.Token) -> reader_pb2.WatchRequest:
    request = reader_pb2.WatchRequest(matchers=[M1])
    getattr(request, "from").extend(tokens)  # A keyword of Python.
    return request


BAD_SELECTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "reversed": ({"start_ms": 9, "end_ms": 1}, "bad_range", "[9, 1) is reversed"),
    "empty": ({"start_ms": 9, "end_ms": 9}, "bad_range", "[9, 9) is empty"),
    "no selector": ({"matchers": []}, "bad_selector", "matchers or series_ids"),
    "matches everything": ({"matchers": [NONEMPTY]}, "selector_too_broad", "at least one matcher"),
    "regex too long": (
        {"matchers": [regex("." * (REGEX_BYTES_MAX + 1))]},
        "regex_too_large",
        f"limit is {REGEX_BYTES_MAX}",
    ),
    "regex too costly": ({"matchers": [regex("((a{99}){99}){99}")]}, "regex_too_large", ""),
    "regex malformed": ({"matchers": [regex("a(b")]}, "regex_malformed", "a(b"),
    "unknown partition": ({"options": {"partitions": [7]}}, "bad_partition", "[7]"),
    "token of another topic": ({"options": {"after": [token(topic_id="gone")]}}, "wrong_topic", "'gone'"),
    "columns in steps": (
        {"encoding": reader_pb2.COLUMNS, "step_ms": MINUTE_MS, "aggregation": reader_pb2.SUM},
        "bad_encoding",
        "RAW",
    ),
    "step without aggregation": ({"step_ms": 5}, "bad_step", "go together"),
}


@pytest.mark.parametrize("case", BAD_SELECTS)
def test_bad_selects_are_invalid_arguments_that_name_the_field(served: Served, case: str) -> None:
    changes, reason, named = BAD_SELECTS[case]
    fields = {"matchers": [M1], "start_ms": served.since_ms, "end_ms": served.now_ms, **changes}
    got = refusal(lambda: served.node.stub.Select(reader_pb2.SelectRequest(**fields)))
    assert (got.code, got.domain, got.reason) == (grpc.StatusCode.INVALID_ARGUMENT, DOMAIN, reason)
    assert named in got.message
    assert not got.retry


def test_a_token_of_a_partition_not_served_is_refused(served: Served) -> None:
    options = reader_pb2.ReadOptions(after=[token(partition=5, topic_id=served.node.topic_id)])
    request = reader_pb2.SelectRequest(matchers=[M1], start_ms=0, end_ms=1, options=options)
    got = refusal(lambda: served.node.stub.Select(request))
    assert (got.code, got.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "bad_partition")
    assert "partition 5" in got.message


@pytest.mark.parametrize("selector", ["m{", 'm{a="b"', 'm{a~"b"}', "m{}{}", "9m", ""])
def test_a_selector_that_does_not_parse_never_leaves_the_client(served: Served, selector: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        served.node.client.select(selector, 0, 1)
    assert caught.value.reason == "bad_selector"


OVER_LIMIT: dict[str, tuple[dict[str, Any], str, int]] = {
    "series": ({"series_max": 11}, "series_limit", 11),
    "samples": ({"samples_max": 1000}, "samples_limit", 1000),
    "samples of the second partition": ({"samples_max": 1700}, "samples_limit", 1700),
    "samples in columns": ({"samples_max": 1000, "encoding": reader_pb2.COLUMNS}, "samples_limit", 1000),
    "bytes": ({"bytes_max": 30_000}, "bytes_limit", 30_000),
}


@pytest.mark.parametrize("case", OVER_LIMIT)
def test_an_answer_over_a_limit_names_limit_and_size_and_no_retry(served: Served, case: str) -> None:
    changes, reason, limit = OVER_LIMIT[case]
    start_ms, end_ms = RANGES["everything"](served)
    request = reader_pb2.SelectRequest(matchers=[regex("m_.*")], start_ms=start_ms, end_ms=end_ms, **changes)
    got = refusal(lambda: served.node.stub.Select(request))
    assert (got.code, got.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
    assert int(got.metadata["limit"]) == limit
    assert int(got.metadata["asked"]) > limit
    assert f"limit is {limit}" in got.message
    assert not got.retry


def test_a_caller_cannot_raise_the_servers_limits(served: Served) -> None:
    with Node(served.feeder.log, limits=SelectLimits(series_max=2)) as strict:
        strict.wait_ready()
        request = reader_pb2.SelectRequest(matchers=[M1], start_ms=0, end_ms=served.now_ms, series_max=1000)
        got = refusal(lambda: strict.stub.Select(request))
        assert (got.reason, got.metadata["limit"]) == ("series_limit", "2")
        got = refusal(lambda: strict.stub.Series(reader_pb2.SeriesRequest(series_max=1000)))
        assert (got.code, got.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "series_limit")


BAD_READS: dict[str, tuple[str, Any, str]] = {
    "series: reversed": ("Series", reader_pb2.SeriesRequest(start_ms=2, end_ms=1), "bad_range"),
    "series: bad matcher": ("Series", reader_pb2.SeriesRequest(matchers=[regex("(")]), "regex_malformed"),
    "series: partition": (
        "Series",
        reader_pb2.SeriesRequest(options=reader_pb2.ReadOptions(partitions=[3])),
        "bad_partition",
    ),
    "names: bad matcher": ("LabelNames", reader_pb2.LabelNamesRequest(matchers=[common_pb2.Matcher()]), "bad_matcher"),
    "names: reversed": ("LabelNames", reader_pb2.LabelNamesRequest(start_ms=2, end_ms=1), "bad_range"),
    "values: no name": ("LabelValues", reader_pb2.LabelValuesRequest(), "bad_label"),
    "watch: bad matcher": ("Watch", reader_pb2.WatchRequest(matchers=[regex("(")]), "regex_malformed"),
    "watch: nothing chosen": ("Watch", reader_pb2.WatchRequest(), "selector_too_broad"),
    "watch: partition": ("Watch", reader_pb2.WatchRequest(matchers=[M1], partitions=[4]), "bad_partition"),
    "watch: another topic": (
        "Watch",
        watch_from(token(topic_id="gone")),
        "wrong_topic",
    ),
}


@pytest.mark.parametrize("case", BAD_READS)
def test_other_bad_reads_are_invalid_arguments_too(served: Served, case: str) -> None:
    method, request, reason = BAD_READS[case]
    got = refusal(lambda: getattr(served.node.stub, method)(request))
    assert (got.code, got.domain, got.reason) == (grpc.StatusCode.INVALID_ARGUMENT, DOMAIN, reason)


def test_label_values_over_a_limit_name_the_label(served: Served) -> None:
    request = reader_pb2.LabelValuesRequest(name="instance", values_max=3)
    got = refusal(lambda: served.node.stub.LabelValues(request))
    assert (got.code, got.reason, got.metadata["limit"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "values_limit", "3")
    assert "'instance'" in got.message


def test_a_token_not_applied_in_time_is_unavailable_and_named(served: Served) -> None:
    options = reader_pb2.ReadOptions(after=[token(MINUTES + 5, 1, served.node.topic_id)])
    request = reader_pb2.SelectRequest(matchers=[M1], start_ms=0, end_ms=1, options=options)
    # The refusal comes a twentieth of the caller's time before its end: a pause of the machine can take all of that.
    for timeout_s in (1.0, 5.0, 30.0):
        try:
            got = refusal(lambda given_s=timeout_s: served.node.stub.Select(request, timeout=given_s))  # type: ignore[misc]
            break
        except LateError:
            continue
    else:
        pytest.fail("no refusal of the server within 30 s")
    assert (got.code, got.reason, got.retry) == (grpc.StatusCode.UNAVAILABLE, "not_applied", True)
    assert (got.metadata["partition"], got.metadata["record_offset"]) == ("1", str(MINUTES + 5))


@pytest.fixture(scope="module", params=["store", "querier"])
def trimmed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Node | QuerierNode, int]]:
    """A store over a log without its first record, or a querier over that store without a history; and the time of the
    next record.
    """
    with LogFactory(f"sqlite:///{tmp_path_factory.mktemp('trimmed')}/log.db", "") as factory:
        log = make_topics(factory, 1)
        now_ms = time.time_ns() // 1_000_000
        feeder = Feeder(log)
        feeder.announce([1], 0, now_ms)
        for minute in (120, 60, 1):
            at_ms = now_ms - minute * MINUTE_MS
            feeder.samples(0, [(1, at_ms, 1.0)], at_ms)
        factory.topics().trim("metrics", {0: 1})
        with Node(log).wait_ready_on_entry() as node:
            if request.param == "store":
                yield node, now_ms - 60 * MINUTE_MS
                return
            with QuerierNode([node.address], None, topic_id=node.store.topic_id, partitions=1) as querier:
                yield querier, now_ms - 60 * MINUTE_MS


def test_a_range_before_coverage_is_out_of_range_and_names_the_coverage(
    trimmed: tuple[Node | QuerierNode, int],
) -> None:
    node, first_ms = trimmed
    coverage_ms = first_ms + 20 * MINUTE_MS
    request = reader_pb2.SelectRequest(matchers=[M1], start_ms=coverage_ms - 1, end_ms=coverage_ms + 3600_000)
    got = refusal(lambda: node.stub.Select(request))
    assert (got.code, got.reason) == (grpc.StatusCode.OUT_OF_RANGE, "out_of_coverage")
    assert got.metadata["coverage_start_ms"] == str(coverage_ms)
    assert str(coverage_ms) in got.message
    request.start_ms = coverage_ms
    assert [frame.trailer.samples for frame in node.stub.Select(request)][-1] == 1
    for call in (
        lambda: node.stub.Series(reader_pb2.SeriesRequest(start_ms=coverage_ms - 1)),
        lambda: node.stub.LabelNames(reader_pb2.LabelNamesRequest(start_ms=coverage_ms - 1)),
        lambda: node.stub.LabelValues(reader_pb2.LabelValuesRequest(name="job", start_ms=coverage_ms - 1)),
    ):
        got = refusal(call)
        assert (got.code, got.reason) == (grpc.StatusCode.OUT_OF_RANGE, "out_of_coverage")
    assert node.client.label_values("job", start_ms=coverage_ms, end_ms=coverage_ms + 1) == ["test"]


def test_a_partial_read_gets_samples_below_coverage_too(trimmed: tuple[Node | QuerierNode, int]) -> None:
    node, first_ms = trimmed
    result = node.client.select("m_1", first_ms - 1, first_ms + 1, partial=True)
    assert (result.ts_ms.tolist(), result.orders is not None and result.orders.tolist()) == ([first_ms], [1])


def test_matchers_of_the_client_are_those_of_its_selector_text(served: Served) -> None:
    span = RANGES["the newest"](served)
    by_text = served.node.client.select('m_1{instance=~"i[12]"}', *span)
    matchers = [
        Matcher(MatchType.EQUAL, "__name__", "m_1"),
        Matcher(MatchType.REGEX, "instance", "i[12]"),
    ]
    assert bits(answered(served.node.client.select(matchers, *span))) == bits(answered(by_text))
