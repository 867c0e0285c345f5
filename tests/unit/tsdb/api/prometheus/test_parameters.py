"""Parameters are read as Prometheus reads them, and refused with its words."""

from __future__ import annotations

import pytest

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.parameters import FORM, Form, duration_ns, time_ns
from tsdb.model.errors import InvalidRequest
from tsdb.ops.http.bodies import HttpHead

MS, S = 1_000_000, 1_000_000_000


def form(url: str = "", body: str | None = None, content_type: str = FORM, method: str = "GET") -> Form:
    headers = {"content-type": content_type} if content_type else {}
    return Form.of(HttpHead("POST" if body is not None else method, "/", url, headers), (body or "").encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1435781451.781", 1435781451_781 * MS),
        ("1435781451.7815", 1435781451_782 * MS),
        ("-1.25", -1250 * MS),
        (".5", 500 * MS),
        ("5.", 5 * S),
        ("1e3", 1000 * S),
        ("+1", S),
        ("2015-07-01T20:10:51.781Z", 1435781451_781 * MS),
        ("2015-07-01T20:10:51Z", 1435781451 * S),
        ("2015-07-01T22:10:51.7819+02:00", 1435781451_781_900_000),
        ("2015-07-01T18:10:51-02:00", 1435781451 * S),
        ("1969-12-31T23:59:59.5Z", -500 * MS),
        ("2015-07-01T20:10:51.1234567899Z", 1435781451_123456789),
        ("-292273086-05-16T16:47:06Z", -(1 << 61) * MS),
        ("+292277025-08-18T07:12:54.999999999Z", (1 << 61) * MS),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert time_ns(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", " 1", "1 ", "1_0", "0x10", "1e", "--1", "NaN", "nan", "Inf", "-inf", "1e30", "1e400", "٣"),
        *("2015-07-01", "2015-07-01T20:10:51", "2015-07-01t20:10:51z", "2015-13-01T00:00:00Z", "2015-07-01T24:00:00Z"),
        *("2015-07-01T20:10:60Z", "20150701T201051Z", "2015-07-01T20:10:51+0200", "0000-01-01T00:00:00Z"),
    ],
)
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r'cannot parse ".*" to a valid timestamp'):
        time_ns(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("15", 15 * S), ("0.001", MS), ("1.5", 1500 * MS), ("-1", -S), ("0", 0), ("1e-3", MS)),
        *(("5m", 300 * S), ("1h30m", 5400 * S), ("100ms", 100 * MS), ("1w", 604800 * S), ("1y", 365 * 86400 * S)),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ns(text) == expected


@pytest.mark.parametrize("text", ["", "x", "5", "1 m", "m", "1m1h", "1.5m", "-5m", "1d2"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    if text == "5":
        assert duration_ns(text) == 5 * S
        return
    with pytest.raises(ValueError, match=r'cannot parse ".*" to a valid duration'):
        duration_ns(text)


def test_a_duration_beyond_go_is_named() -> None:
    with pytest.raises(ValueError, match=r'cannot parse "1e30" to a valid duration. It overflows int64'):
        duration_ns("1e30")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("start=x&end=2&step=1", 'invalid parameter "start": cannot parse "x" to a valid timestamp'),
        ("end=2&step=1", 'invalid parameter "start": cannot parse "" to a valid timestamp'),
        ("start=1&end=x&step=1", 'invalid parameter "end": cannot parse "x" to a valid timestamp'),
        ("start=2&end=1&step=1", 'invalid parameter "end": end timestamp must not be before start time'),
        ("start=1&end=2&step=x", 'invalid parameter "step": cannot parse "x" to a valid duration'),
        ("start=1&end=2", 'invalid parameter "step": cannot parse "" to a valid duration'),
        *(
            (
                f"start=1&end=2&step={step}",
                'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
                "Try a positive integer",
            )
            for step in ("0", "-1", "NaN", "0.0001")
        ),
        (
            "start=0&end=11001&step=1",
            "exceeded maximum resolution of 11,000 points per timeseries. "
            "Try decreasing the query resolution (?step=XX)",
        ),
    ],
)
def test_steps_are_refused_with_the_words_of_prometheus(url: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parameters.steps(form(url))
    assert refused.value.message == problem


def test_steps_of_11000_points_are_taken() -> None:
    assert parameters.steps(form("start=0&end=11000&step=1")) == parameters.QuerySteps(0, 11_000_000, 1000)
    assert parameters.steps(form("start=1.25&end=2&step=250ms")) == parameters.QuerySteps(1250, 2000, 250)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", 'invalid parameter "limit": strconv.Atoi: parsing "x": invalid syntax'),
        ("1.5", 'invalid parameter "limit": strconv.Atoi: parsing "1.5": invalid syntax'),
        ("9" * 30, f'invalid parameter "limit": strconv.Atoi: parsing "{"9" * 30}": value out of range'),
        ("-1", 'invalid parameter "limit": limit must be non-negative'),
    ],
)
def test_limits_are_refused_with_the_words_of_prometheus(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parameters.limit(form(f"limit={text}"))
    assert refused.value.message == problem


def test_other_parameters_have_their_defaults() -> None:
    assert parameters.limit(form("")) == 0
    assert parameters.timeout_s(form(""), 9.0) == 9.0
    assert parameters.timeout_s(form("timeout=1s"), 9.0) == 1.0
    assert parameters.timeout_s(form("timeout=1h"), 9.0) == 9.0
    assert parameters.lookback_ms(form(""), 300_000) == 300_000
    assert parameters.lookback_ms(form("lookback_delta=0"), 300_000) == 300_000
    assert parameters.lookback_ms(form("lookback_delta=1m"), 300_000) == 60_000
    assert parameters.optional_time(form("time="), "time") is None


def test_a_time_that_is_optional_is_named_twice() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parameters.optional_time(form("time=x"), "time")
    assert refused.value.message == (
        'invalid parameter "time": invalid time value for \'time\': cannot parse "x" to a valid timestamp'
    )


def test_the_body_comes_before_the_url() -> None:
    both = form("query=url&time=1&match%5B%5D=c", "query=body&match[]=a&match%5b%5d=b")
    assert both.get("query") == "body"
    assert both.get("time") == "1"
    assert both.all("match[]") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("content_type", "read"), [(f"{FORM}; charset=utf-8", True), ("", False), ("text/plain", False)]
)
def test_a_body_of_another_type_is_not_read(content_type: str, read: bool) -> None:
    assert form("", "query=body", content_type).get("query") == ("body" if read else "")


def test_texts_are_unescaped_as_utf_8() -> None:
    found = form("a=1+2%2B3&b=%C3%A9&c=%ff&d&e=")
    assert [found.get(name) for name in "abcde"] == ["1 2+3", "é", "\udcff", "", ""]
    assert not found.problem


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("a=1&b=%zz", 'invalid URL escape "%zz"'),
        ("a=1&b=%4", 'invalid URL escape "%4"'),
        ("a=1&b=2;c=3", "invalid semicolon separator in query"),
    ],
)
def test_a_part_that_cannot_be_read_is_left_out(url: str, problem: str) -> None:
    found = form(url)
    assert (found.get("a"), found.get("b"), found.problem) == ("1", "", problem)
    assert form("c=2", url).get("c") == "2"
