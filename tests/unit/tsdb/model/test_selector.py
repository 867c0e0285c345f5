"""Selectors: valid ones with their matchers, and invalid ones with the position of the error."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import MATCHERS_MAX, SELECTOR_CHARS_MAX, Matcher, MatchType, parse_selector

EQUAL, NOT_EQUAL, REGEX, NOT_REGEX = MatchType.EQUAL, MatchType.NOT_EQUAL, MatchType.REGEX, MatchType.NOT_REGEX
UP = Matcher(EQUAL, "__name__", "up")


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ("up", (UP,)),
        ("  up  ", (UP,)),
        ("up{}", (UP,)),
        ('{__name__="up"}', (UP,)),
        ("job:errors:rate5m", (Matcher(EQUAL, "__name__", "job:errors:rate5m"),)),
        ('up{job="a"}', (UP, Matcher(EQUAL, "job", "a"))),
        ('up{job!="a",}', (UP, Matcher(NOT_EQUAL, "job", "a"))),
        (
            'up { job =~ "a.*" , instance !~ "b" }',
            (UP, Matcher(REGEX, "job", "a.*"), Matcher(NOT_REGEX, "instance", "b")),
        ),
        ("{a='x\"y'}", (Matcher(EQUAL, "a", 'x"y'),)),
        ("{a=`x\\n\n`}", (Matcher(EQUAL, "a", "x\\n\n"),)),
        (r'{a="\\d\"\n\t\x41\u00fc\U0001F321"}', (Matcher(EQUAL, "a", '\\d"\n\tAü🌡'),)),
        ('{"label with space"="x"}', (Matcher(EQUAL, "label with space", "x"),)),
        ('{a=""}', (Matcher(EQUAL, "a", ""),)),
        ('{ort="Zürich, {HB}"}', (Matcher(EQUAL, "ort", "Zürich, {HB}"),)),
        ('{a="1",a="2"}', (Matcher(EQUAL, "a", "1"), Matcher(EQUAL, "a", "2"))),
    ],
)
def test_selectors_parse_to_matchers(text: str, matchers: tuple[Matcher, ...]) -> None:
    assert parse_selector(text) == matchers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'at character 0 got the end, want a metric name or {label="value"}'),
        ("{}", "want a metric name"),
        ("up down", "at character 3 got 'down', want the end of the selector"),
        ("up{job}", "at character 6 got '}', want one of = != =~ !~"),
        ("up{job=a}", "at character 7 got 'a}', want a quoted string"),
        ('up{job="a"', "at character 10 got the end, want `,` or `}`"),
        ('up{job="a" x="b"}', "at character 11 got 'x=\"b\"}', want `,` or `}`"),
        ('up{job="a', "want a quoted string"),
        ('up{job=="a"}', "want a quoted string"),
        ('up{,job="a"}', "want a label name"),
        ('up{9="a"}', "want a label name"),
        ('up{job="a"}}', "want the end of the selector"),
        ("up[5m]", "want the end of the selector"),
        (r'{a="\q"}', r"unknown escape \q"),
        (r'{a="\x4"}', r"unknown escape \x"),
        ("9up", "at character 0 got '9up'"),
    ],
)
def test_a_selector_that_does_not_parse_is_refused_with_the_position(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_selector(text)
    assert refused.value.reason == "bad_selector"
    assert message in refused.value.message


def test_a_long_selector_is_refused_before_it_is_read() -> None:
    fits = '{a="' + "x" * (SELECTOR_CHARS_MAX - 6) + '"}'
    assert len(parse_selector(fits)[0].value) == SELECTOR_CHARS_MAX - 6
    with pytest.raises(InvalidRequest, match=f"selector has {SELECTOR_CHARS_MAX + 1} characters; limit is"):
        parse_selector(fits + " ")


@pytest.mark.parametrize("quote", ['"', "'", "`"])
def test_a_long_value_takes_the_memory_of_its_text(quote: str) -> None:
    text = "{a=" + quote + "x" * 1_000_000 + quote + "}"
    tracemalloc.start()
    parse_selector(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * len(text)


def test_too_many_matchers_are_refused() -> None:
    pairs = ['a="1"'] * MATCHERS_MAX
    assert len(parse_selector("{" + ",".join(pairs) + "}")) == MATCHERS_MAX
    with pytest.raises(InvalidRequest, match=f"selector has over {MATCHERS_MAX} matchers"):
        parse_selector("{" + ",".join([*pairs, 'a="1"']) + "}")


VALUES = st.text(st.characters(codec="utf-8"), max_size=20)
MATCHERS = st.builds(
    Matcher, st.sampled_from(MatchType), st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True), VALUES
)
SIGNS = {EQUAL: "=", NOT_EQUAL: "!=", REGEX: "=~", NOT_REGEX: "!~"}


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(st.lists(MATCHERS, min_size=1, max_size=5))
def test_any_matchers_are_read_back_as_written(matchers: list[Matcher]) -> None:
    text = ",".join(f"{matcher.name}{SIGNS[matcher.type]}{quoted(matcher.value)}" for matcher in matchers)
    assert parse_selector("{" + text + "}") == tuple(matchers)


def refusal(text: str) -> str | None:
    try:
        parse_selector(text)
    except InvalidRequest as refused:
        return refused.reason
    return None


@given(st.text(max_size=60) | st.text(st.sampled_from("up{}=~!\"'`,\\x \n"), max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    assert refusal(text) in (None, "bad_selector")
