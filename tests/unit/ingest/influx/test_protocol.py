"""InfluxDB's write routes: credentials, parameters, the answer to each outcome in the form of the path's version."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from ingest.http.protocol import Decoded, MediaType, Outcome, WriteCall
from ingest.influx.lines import LineRules
from ingest.influx.protocol import PING, WRITE_V1, WRITE_V2, influx_protocols
from ingest.influx.queries import bearer
from ingest.pipeline import AcceptedWrite
from ingest.refusals import Offender, RefusedSeries
from support.counters import sample
from tsdb.model.clock import ManualClock
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unauthenticated, Unavailable
from tsdb.ops.http.bodies import HttpAnswer, HttpHead

NOW_MS = 1_700_000_000_000
WRITE, PINGS = influx_protocols(LineRules(database_label="db"), ManualClock(NOW_MS))


def head(path: str = WRITE_V1, query: str = "", headers: Mapping[str, str] | None = None) -> HttpHead:
    return HttpHead("POST", path, query, headers or {})


def decoded(body: bytes, path: str = WRITE_V1, query: str = "") -> Decoded:
    result = WRITE.decode(call(body, path, query))
    assert isinstance(result, Decoded)
    return result


def call(body: bytes, path: str = WRITE_V1, query: str = "") -> WriteCall:
    return WriteCall(head(path, query), MediaType("text/plain"), "", body, 1 << 20)


def answer(path: str, body: bytes, result: AcceptedWrite | None, error: TsdbError | None) -> HttpAnswer:
    return WRITE.answer(call(b"", path), Outcome(result, error, decoded(body, path)))


def text(answer: HttpAnswer) -> str:
    fields = json.loads(answer.body)
    return str(fields.get("error") or fields["message"])


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "query", "want"),
    [
        ("Token abc", "", "Bearer abc"),
        ("token abc", "", "Bearer abc"),
        ("Bearer abc", "", "Bearer abc"),
        (basic("me", "abc"), "", "Bearer abc"),
        (basic("me", "a:b"), "", "Bearer a:b"),
        ("Basic !!!", "", "Basic !!!"),
        ("Basic " + base64.b64encode(b"no colon").decode(), "", "Basic bm8gY29sb24="),
        ("", "db=x&u=me&p=abc", "Bearer abc"),
        ("", "p=a%2Bb", "Bearer a+b"),
        ("Token abc", "p=other", "Bearer abc"),
        ("", "u=me", None),
        ("", "&".join(f"x{n}=1" for n in range(100)), None),
    ],
)
def test_each_form_of_credentials_is_a_token(authorization: str, query: str, want: str | None) -> None:
    got = bearer(head(query=query, headers={"authorization": authorization} if authorization else {}))
    assert got == want


def test_precision_and_database_come_from_the_query_of_either_version() -> None:
    for path, query in ((WRITE_V1, "db=main&precision=s&u=x"), (WRITE_V2, "org=o&bucket=main&precision=s")):
        rows = decoded(b"m f=1 5", path, query).rows
        assert rows.ts_ms.tolist() == [5000]
        assert rows.labels.tobytes() == b"__name__\xffm_f\xffdb\xffmain"


def test_a_line_without_a_timestamp_has_the_time_of_the_gateway() -> None:
    assert decoded(b"m f=1").rows.ts_ms.tolist() == [NOW_MS]


@pytest.mark.parametrize("query", ["precision=ps", "&".join(f"x{n}=1" for n in range(100))])
def test_a_query_that_cannot_be_read_is_refused(query: str) -> None:
    with pytest.raises(InvalidRequest):
        decoded(b"m f=1", query=query)


def test_lines_refused_as_text_and_strings_are_counted() -> None:
    before = sample("tsdb_influx_refused_lines_total", reason="bad_number"), sample("tsdb_influx_strings_total")
    decoded(b'm f=x\nm f=y\nm s="z",f=1')
    after = sample("tsdb_influx_refused_lines_total", reason="bad_number"), sample("tsdb_influx_strings_total")
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)


def test_a_stored_request_is_answered_with_204_and_nothing_else() -> None:
    for path in (WRITE_V1, WRITE_V2):
        assert answer(path, b"m f=1", AcceptedWrite([], 1, {}, 0, []), None) == HttpAnswer(204, content_type="")


def test_refused_lines_are_listed_by_number_and_the_answer_says_what_is_stored() -> None:
    got = answer(WRITE_V1, b"m f=1\nm f=x\nbad\n", AcceptedWrite([], 1, {}, 0, []), None)
    assert got.status == 400
    assert text(got).splitlines() == [
        "partial write: 1 samples are stored",
        "2 lines are refused (bad_number: 1, missing_fields: 1)",
        "line 2, byte 5: want a number, a boolean or a quoted string: 'm f=x'",
        "line 3, byte 4: want a field: 'bad'",
    ]


def test_refused_series_are_named_by_their_line() -> None:
    offenders = [Offender(2, "too_old", "timestamp 5 is too old")]
    error = RefusedSeries("1 series is refused", {"too_old": 1}, offenders, reason="too_old")
    got = answer(WRITE_V2, b"m a=1,b=2\n\nm f=1 5\nbad", AcceptedWrite([], 2, {"too_old": 1}, 1, offenders), error)
    assert (got.status, json.loads(got.body)["code"]) == (400, "invalid")
    assert text(got).splitlines() == [
        "partial write: 2 samples are stored",
        "1 lines are refused (missing_fields: 1)",
        "line 4, byte 4: want a field: 'bad'",
        "1 series is refused",
        "line 3: too_old: timestamp 5 is too old",
    ]


OVER_LIMIT = RefusedSeries("over", {}, [Offender(0, "x", "y")], reason="source_series_limit")
ERRORS = [
    (Unavailable("the log is away", retry_after_s=2.0), 503, 503, "unavailable", "2"),
    (Overloaded("the queue is full", reason="queue_full"), 503, 503, "unavailable", "1"),
    (Overloaded("too many", reason="source_samples_limit", retry_after_s=29.5), 503, 429, "too many requests", "30"),
    (OVER_LIMIT, 400, 400, "invalid", None),
    (InvalidRequest("large", reason="message_too_large"), 413, 413, "request too large", None),
    (InvalidRequest("json", reason="unsupported_media_type"), 415, 415, "unsupported media type", None),
    (Unauthenticated("a token is required"), 401, 401, "unauthorized", None),
    (TsdbError("internal error"), 500, 500, "internal error", None),
]


@pytest.mark.parametrize(("error", "v1", "v2", "code", "retry_after"), ERRORS)
def test_each_error_has_the_status_that_makes_senders_keep_or_drop_it(
    error: TsdbError, v1: int, v2: int, code: str, retry_after: str | None
) -> None:
    for path, status in ((WRITE_V1, v1), (WRITE_V2, v2)):
        got = WRITE.answer(call(b"", path), Outcome(error=error))
        assert (got.status, dict(got.headers).get("retry-after")) == (status, retry_after)
        assert text(got).startswith(error.message)
    assert json.loads(WRITE.answer(call(b"", WRITE_V2), Outcome(error=error)).body)["code"] == code


def test_an_answer_is_bounded_whatever_the_lines_hold() -> None:
    body = b"".join(b"m,%s f=1\n" % (b"\xff" * 70) for _ in range(1000))
    got = answer(WRITE_V2, body, AcceptedWrite([], 0, {}, 0, []), None)
    assert got.status == 400
    assert len(got.body) < 20_000


def test_a_ping_names_a_version_that_senders_write_to() -> None:
    got = PINGS.decode(replace(call(b"", PING), head=HttpHead("GET", PING, "", {})))
    assert isinstance(got, HttpAnswer)
    assert (got.status, dict(got.headers)["x-influxdb-version"]) == (204, "1.8.10")
