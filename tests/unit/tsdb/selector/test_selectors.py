"""Selectors: valid ones with their matchers, and invalid ones with the position of the error."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import MATCHERS_MAX, Matcher, MatchType
from tsdb.selector.selectors import parse_selector
from tsdb.selector.tokens import QUERY_CHARS_MAX

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
        ('up{a=""}', (UP, Matcher(EQUAL, "a", ""))),
        ('{"up"}', (UP,)),
        ('{"http.requests","a.b"!="1"}', (Matcher(EQUAL, "__name__", "http.requests"), Matcher(NOT_EQUAL, "a.b", "1"))),
        ("up # a comment", (UP,)),
        ("sum", (Matcher(EQUAL, "__name__", "sum"),)),
        (r'{a="\xc3\xbc"}', (Matcher(EQUAL, "a", "ü"),)),
        ('{ort="Zürich, {HB}"}', (Matcher(EQUAL, "ort", "Zürich, {HB}"),)),
        ('{a="1",a="2"}', (Matcher(EQUAL, "a", "1"), Matcher(EQUAL, "a", "2"))),
    ],
)
def test_selectors_parse_to_matchers(text: str, matchers: tuple[Matcher, ...]) -> None:
    assert parse_selector(text) == matchers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", '1:1: parse error: unexpected end of input, expected a metric name or "{"'),
        ("{}", "vector selector must contain at least one non-empty matcher"),
        ('{a=""}', "vector selector must contain at least one non-empty matcher"),
        ('{a=~"x?"}', "vector selector must contain at least one non-empty matcher"),
        ("up down", '1:4: parse error: unexpected identifier "down"'),
        ("up{job}", '1:7: parse error: unexpected "}" in label matching, expected label matching operator'),
        ("up{job=a}", '1:8: parse error: unexpected identifier "a" in label matching, expected string'),
        ('up{job="a"', "1:11: parse error: unexpected end of input inside braces"),
        ('up{job="a" x="b"}', '1:12: parse error: unexpected identifier "x" in label matching, expected "," or "}"'),
        ('up{job="a', "1:8: parse error: unterminated quoted string"),
        ('up{job=="a"}', "expected label matching operator"),
        ('up{,job="a"}', "expected label name"),
        ('up{9="a"}', "expected label name"),
        ('up{job="a"}}', '1:12: parse error: unexpected "}"'),
        ("up[5m]", '1:3: parse error: unexpected "["'),
        ("bool", 'unexpected identifier "bool"'),
        ("inf", 'unexpected identifier "inf"'),
        (r'{a="\q"}', r"unknown escape sequence \q"),
        (r'{a="\x4"}', r"unknown escape sequence \x"),
        (r'{a="\xff"}', "is not UTF-8"),
        ("9up", '1:1: parse error: bad number or duration syntax: "9up"'),
        ("http.requests", "1:5: parse error: unexpected character: '.'"),
        ('up{a.b="c"}', "1:5: parse error: unexpected character: '.'"),
        ('up{"down"}', "1:4: parse error: metric name must not be set twice"),
        ('up{job=~"("}', "1:4: parse error: regular expression '(': missing )"),
    ],
)
def test_a_selector_that_does_not_parse_is_refused_with_the_position(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_selector(text)
    assert refused.value.reason == ("selector_too_broad" if "non-empty" in message else "bad_selector")
    assert message in refused.value.message


def test_a_long_selector_is_refused_before_it_is_read() -> None:
    fits = '{a="' + "x" * (QUERY_CHARS_MAX - 6) + '"}'
    assert len(parse_selector(fits)[0].value) == QUERY_CHARS_MAX - 6
    with pytest.raises(InvalidRequest, match=f"query has {QUERY_CHARS_MAX + 1} characters; the limit is"):
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
    with pytest.raises(InvalidRequest, match=f"selector has more than {MATCHERS_MAX} matchers"):
        parse_selector("{" + ",".join([*pairs, 'a="1"']) + "}")


NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True)
VALUES = st.text(st.characters(codec="utf-8"), max_size=20)
MATCHERS = st.builds(Matcher, st.sampled_from((EQUAL, NOT_EQUAL)), NAMES, VALUES) | st.builds(
    Matcher, st.sampled_from((REGEX, NOT_REGEX)), NAMES, VALUES.map(re.escape)
)
SIGNS = {EQUAL: "=", NOT_EQUAL: "!=", REGEX: "=~", NOT_REGEX: "!~"}


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(st.lists(MATCHERS, max_size=5))
def test_any_matchers_are_read_back_as_written(matchers: list[Matcher]) -> None:
    matchers = [Matcher(EQUAL, "job", "x"), *matchers]
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
    assert refusal(text) in (None, "bad_selector", "selector_too_broad")
