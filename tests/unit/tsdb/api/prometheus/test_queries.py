"""Queries over HTTP: results and errors in the envelope of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from support.api.prometheus_server import FORM, NOW_MS, ApiServer, api_server
from tsdb.api.prometheus.call import ApiOptions
from tsdb.model.errors import (
    CorruptData,
    HoleInRange,
    InvalidRequest,
    OutOfCoverage,
    Overloaded,
    TsdbError,
    Unavailable,
)
from tsdb.promql.evaluate.query import EvaluationResult, QueryOptions
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.query.shadow.seen import Encoded
from tsdb.v1 import reader_pb2

UP = {"__name__": "up", "job": "a"}
AT_S = NOW_MS / 1000


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    with api_server() as server:
        server.samples.add(UP, [(NOW_MS - 60_000, 0.0), (NOW_MS, 1.0)])
        server.samples.add({"__name__": "up", "job": "b<é>"}, [(NOW_MS, 0.5)])
        yield server


@pytest.fixture(autouse=True)
def _restore(served: ApiServer) -> Iterator[None]:
    yield
    served.samples.error, served.samples.warnings = None, ()


class _Results:
    """The requests and results that the hook of a process gets."""

    def __init__(self) -> None:
        self.got: list[tuple[reader_pb2.QueryRequest, EvaluationResult]] = []

    def answer(
        self, method: str, request: Message, context: grpc.ServicerContext, messages: Iterator[Encoded]
    ) -> Iterator[Encoded]:
        raise AssertionError("no call of gRPC is sent")

    def result(self, request: Callable[[], reader_pb2.QueryRequest], result: EvaluationResult, seconds: float) -> None:
        self.got.append((request(), result))


def test_the_hook_gets_each_result_with_the_request_that_brings_it_again_by_grpc() -> None:
    seen = _Results()
    with api_server(seen=seen) as server:
        server.samples.add(UP, [(NOW_MS, 1.0)])
        server.get("query", query="up", time=AT_S, allow_stale=1)
        server.get("query_range", query="sum(up)", start=AT_S - 60, end=AT_S, step=30, lookback_delta="2m")
        server.get("query", query="up{")
        server.get("labels")
    (instant, found), (ranged, _) = seen.got
    assert (instant.query, instant.start_ms, instant.end_ms, instant.step_ms) == ("up", NOW_MS, NOW_MS, 0)
    assert (instant.options.allow_stale, instant.options.allow_holes) == (True, False)
    assert (ranged.query, ranged.end_ms - ranged.start_ms, ranged.step_ms) == ("sum(up)", 60_000, 30_000)
    assert (instant.lookback_ms, ranged.lookback_ms) == (300_000, 120_000)
    assert found.times_ms.tolist() == [NOW_MS]


def test_a_vector(served: ApiServer) -> None:
    got = served.get("query", query="up")
    assert got.status == 200
    assert got.headers["content-type"] == "application/json"
    assert got.body == (
        b'{"status":"success","data":{"resultType":"vector","result":['
        b'{"metric":{"__name__":"up","job":"a"},"value":[1435781451.781,"1"]},'
        b'{"metric":{"__name__":"up","job":"b<\xc3\xa9>"},"value":[1435781451.781,"0.5"]}]}}'
    )


def test_a_matrix_of_steps(served: ApiServer) -> None:
    got = served.get("query_range", query='up{job="a"}', start=AT_S - 60, end=AT_S, step=30)
    assert got.body == (
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","job":"a"},'
        b'"values":[[1435781391.781,"0"],[1435781421.781,"0"],[1435781451.781,"1"]]}]}}'
    )


@pytest.mark.parametrize(
    ("query", "kind", "result"),
    [
        ("1", "scalar", [1.5, "1"]),
        ("1e-7", "scalar", [1.5, "0.0000001"]),
        ("vector(1e-7)", "vector", [{"metric": {}, "value": [1.5, "1e-07"]}]),
        ("-1/0", "scalar", [1.5, "-Inf"]),
        ('"a\\nb"', "string", [1.5, "a\nb"]),
        ("nothing", "vector", []),
        ("nothing[5m]", "matrix", []),
    ],
)
def test_each_type_of_result(served: ApiServer, query: str, kind: str, result: Any) -> None:
    assert served.get("query", query=query, time=1.5).data == {"resultType": kind, "result": result}


def test_samples_of_a_range(served: ApiServer) -> None:
    data = served.get("query", query='up{job="a"}[2m]').data
    assert data["resultType"] == "matrix"
    assert data["result"] == [{"metric": UP, "values": [[AT_S - 60, "0"], [AT_S, "1"]]}]


def test_a_number_over_steps_is_a_matrix(served: ApiServer) -> None:
    data = served.get("query_range", query="2", start=0, end=2, step=1).data
    assert data == {"resultType": "matrix", "result": [{"metric": {}, "values": [[0, "2"], [1, "2"], [2, "2"]]}]}


@pytest.mark.parametrize("path", ["query", "query_range"])
def test_post_gives_the_same_as_get(served: ApiServer, path: str) -> None:
    asked: dict[str, Any] = {"query": "up + 1", "time": AT_S, "start": AT_S - 60, "end": AT_S, "step": "15s"}
    assert served.post(path, **asked).body == served.get(path, **asked).body


def test_url_and_body_are_merged(served: ApiServer) -> None:
    got = served.send("POST", "/api/v1/query?query=2&time=1", b"query=1", FORM)
    assert got.data["result"] == [1, "1"]


@pytest.mark.parametrize(
    ("path", "asked", "problem"),
    [
        ("query", {"query": ""}, 'invalid parameter "query": 1:1: parse error: no expression found in input'),
        (
            "query",
            {"query": "rate(up)"},
            'invalid parameter "query": 1:6: parse error: expected type range vector in call to function "rate", got '
            "instant vector",
        ),
        (
            "query",
            {"query": "up", "time": "x"},
            'invalid parameter "time": invalid time value for \'time\': cannot parse "x" to a valid timestamp',
        ),
        ("query", {"query": "up", "timeout": "x"}, 'invalid parameter "timeout": cannot parse "x" to a valid duration'),
        (
            "query",
            {"query": "up", "lookback_delta": "x"},
            'error parsing lookback delta duration: cannot parse "x" to a valid duration',
        ),
        (
            "query",
            {"query": "up", "limit": "x", "time": "y"},
            'invalid parameter "limit": strconv.Atoi: parsing "x": invalid syntax',
        ),
        (
            "query_range",
            {"query": '"a"', "start": 0, "end": 1, "step": 1},
            'invalid parameter "query": invalid expression type "string" for range query, must be Scalar or instant '
            "Vector",
        ),
        (
            "query_range",
            {"query": "up", "start": 0, "end": 11_001, "step": 1},
            "exceeded maximum resolution of 11,000 points per timeseries. "
            "Try decreasing the query resolution (?step=XX)",
        ),
    ],
)
def test_bad_data_is_400_with_the_words_of_prometheus(
    served: ApiServer, path: str, asked: dict[str, Any], problem: str
) -> None:
    assert served.get(path, **asked).failure == (400, "bad_data", problem)


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "(" * 10_000,
        "-" * 10_000 + "1",
        "1+" * 60_000 + "1",
        "x" * 1_100_000,
        '{a=~"' + "(" * 500 + '"}',
        "\x00",
        '"\\xff"+1',
    ],
    ids=["brackets", "signs", "sums", "long", "pattern", "nul", "bytes"],
)
def test_a_pathological_query_is_bad_data(served: ApiServer, query: str) -> None:
    status, kind, _ = served.post("query", query=query).failure
    assert (status, kind) == (400, "bad_data")
    assert served.get("query", query="1").status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "value"),
    [
        (" + ".join(["1"] * 30_000), "30000"),
        (" or ".join(f"absent(x{row})" for row in range(300)), "1"),
        (" + ".join(f'count(absent(x{{instance="{row:0100}"}}))' for row in range(600)), "600"),
        ("abs(" * 100 + "vector(1)" + ")" * 100, "1"),
        ("sum(" * 400 + "vector(1)" + ")" * 400, "1"),
        ("max_over_time(" * 100 + "vector(1)" + "[1m:1m])" * 100, "1"),
        ("(" * 900 + "vector(1)" + ")" * 900, "1"),
        ("- " * 900 + "vector(1)", "1"),
        ("absent(x{" + ",".join(f'l{row}!~"a"' for row in range(500)) + "})", "1"),
        ('absent(x{instance=~"' + "|".join(f"host-{row}:9100" for row in range(20_000)) + '"})', "1"),
        ('absent(x{instance=~"' + "|".join(f"10.0.{row}.7:9100" for row in range(400)) + '"})', "1"),
        ('absent(x{instance=~"a{1,1000}.{1,1000}"})', "1"),
    ],
    ids=[
        *("parts of +", "parts of or", "74,000 characters", "calls", "aggregations", "subqueries", "parentheses"),
        *("signs", "matchers", "values", "values with points", "repetitions"),
    ],
)
def test_a_large_query_of_a_dashboard_is_answered(served: ApiServer, query: str, value: str) -> None:
    result = served.post("query", query=query, time="1").data
    assert (result["result"][1] if result["resultType"] == "scalar" else result["result"][0]["value"][1]) == value
    result = served.post("query_range", query=query, start="1", end="3", step="1").data["result"]
    assert [row["values"] for row in result] == [[[1, value], [2, value], [3, value]]]


def test_what_the_samples_refuse_is_422(served: ApiServer) -> None:
    status, kind, problem = served.get("query", query='up and label_replace(up, "job", "a", "", "")').failure
    assert (status, kind) == (422, "execution")
    assert problem == "vector cannot contain metrics with the same labelset"


def test_too_many_values_are_422() -> None:
    with api_server(ApiOptions(query=QueryOptions(values_max=1000))) as served:
        served.samples.add(UP, [(1000, 1.0)])
        status, kind, problem = served.get("query_range", query="up", start=0, end=5000, step=1).failure
        assert (status, kind) == (422, "execution")
        assert problem.startswith("query processing would load too many samples into memory")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Unavailable("partition 3 lags", reason="lagging", retry_after_s=2.5), 503, "unavailable"),
        (Unavailable("history is behind", reason="history_behind"), 503, "unavailable"),
        (Overloaded("no room", reason="answers_bytes"), 503, "unavailable"),
        (Overloaded("too many", reason="series_limit"), 422, "execution"),
        (Overloaded("too long", reason="read_timeout"), 503, "timeout"),
        (HoleInRange("samples are lost"), 422, "execution"),
        (OutOfCoverage("before memory"), 422, "execution"),
        (CorruptData("bad bytes"), 500, "internal"),
        (InvalidRequest("bad matcher", reason="bad_matcher"), 400, "bad_data"),
    ],
)
@pytest.mark.parametrize("path", ["query", "labels"])
def test_errors_of_reads_have_their_type(
    served: ApiServer, path: str, error: TsdbError, status: int, kind: str
) -> None:
    served.samples.error = error
    got = served.get(path, query="up")
    assert got.failure[:2] == (status, kind)
    assert error.message in got.failure[2]
    assert isinstance(error, InvalidRequest) or error.reason in got.failure[2]
    assert got.headers.get("retry-after") == (
        {2.5: "3"}.get(getattr(error, "retry_after_s", None) or 0, "1") if kind == "unavailable" else None
    )


def test_a_bug_is_500_without_its_inside(served: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.samples.memory, "select", lambda *_: 1 / 0)
    assert served.get("query", query="up").failure[:2] == (500, "internal")
    assert b"division" not in served.get("query", query="up").body


def test_warnings_and_infos_stand_beside_the_data(served: ApiServer) -> None:
    served.samples.warnings = ("a hole in partition 3",)
    got = served.get("query", query="rate(up[5m])").json
    assert got["warnings"] == ["a hole in partition 3"]
    assert got["infos"] == [
        'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "up" (1:6)'
    ]
    assert list(got) == ["status", "data", "warnings", "infos"]


def test_at_most_ten_warnings_are_shown(served: ApiServer) -> None:
    served.samples.warnings = tuple(f"hole {number}" for number in range(13))
    assert served.get("query", query="up").json["warnings"][9:] == ["hole 9", "3 more warning annotations omitted"]


@pytest.mark.parametrize(("limit", "series", "warned"), [(0, 2, False), (1, 1, True), (2, 2, False), (3, 2, False)])
@pytest.mark.parametrize("query", ["up", "up[5m]"])
def test_the_limit_cuts_series(served: ApiServer, query: str, limit: int, series: int, warned: bool) -> None:
    got = served.get("query", query=query, limit=limit).json
    assert len(got["data"]["result"]) == series
    assert got.get("warnings", []) == (["results truncated due to limit"] if warned else [])


def test_lookback_of_the_request(served: ApiServer) -> None:
    asked: dict[str, Any] = {"query": 'up{job="b<é>"}', "time": AT_S + 60}
    assert len(served.get("query", **asked).data["result"]) == 1
    assert served.get("query", **asked, lookback_delta="30s").data["result"] == []


def test_stats_are_told_on_request(served: ApiServer) -> None:
    assert "stats" not in served.get("query", query="up").data
    stats = served.get("query", query="up", stats="all").data["stats"]
    assert stats["samples"]["totalQueryableSamples"] == 3
    assert set(stats["timings"]) == {
        *("evalTotalTime", "resultSortTime", "queryPreparationTime", "innerEvalTime", "execQueueTime", "execTotalTime")
    }


@pytest.mark.parametrize(("text", "expected"), [("", False), ("1", True), ("true", True), ("0", False)])
def test_holes_and_lags_are_accepted_on_request(served: ApiServer, text: str, expected: bool) -> None:
    served.get("query", query="up", allow_holes=text, allow_stale=text)
    options = served.samples.options[-1]
    assert (options.allow_holes, options.allow_stale) == (expected, expected)


def test_experimental_functions_are_behind_a_setting() -> None:
    query = "sum(limitk(1, up))"
    with api_server() as served:
        assert served.get("query", query=query).failure[0] == 400
    with api_server(ApiOptions(query=QueryOptions(ALL_FEATURES))) as served:
        assert served.get("query", query=query).status == 200


@pytest.mark.parametrize(("text", "max_lag_ms"), [("", None), ("1s", 1000), ("0.5", 500), ("0", 0), ("2m", 120_000)])
@pytest.mark.parametrize("path", ["query", "series", "labels", "label/job/values"])
def test_a_bound_on_the_lag_reaches_the_reads(served: ApiServer, path: str, text: str, max_lag_ms: int | None) -> None:
    served.get(path, query="up", match="up", max_lag=text)
    assert served.samples.options[-1].max_lag_ms == max_lag_ms


@pytest.mark.parametrize("text", ["soon", "-1s", "-5"])
def test_a_bound_on_the_lag_that_is_none_is_refused(served: ApiServer, text: str) -> None:
    got = served.get("query", query="up", max_lag=text)
    assert (got.status, got.json["errorType"]) == (400, "bad_data")
    assert "max_lag" in got.json["error"]
