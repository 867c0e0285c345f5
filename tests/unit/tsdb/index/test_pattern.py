from __future__ import annotations

import re

import pytest

from tsdb.index.pattern import PATTERN_BYTES_MAX, compile_pattern
from tsdb.model.errors import InvalidRequest

VALUES = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "a.b",
    "axb",
    "a|b",
    "a\nb",
    "api-1",
    "api-22",
    "api-",
    "xapi-1",
    "é",
    "(a)",
    "a\\b",
]


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "ab|a", "(a|b)", "(?:a|b|)", "a|", "|", "a\\.b", "a\\|b", "a.b", "a.*", "a.+", ".*", ".+", "ab?",
        "api-[0-9]+", "api-.*", "api-.+", "api-\\d", ".*b", "(?i)AB", "[ab]", "\\(a\\)", "a\\\\b", "é|x", "é.*",
        "(a)|(b)", "ab*c", "a{1}", "^a$", "a|b.*", "(a|b)c?", "()", "(a|b).*", "a.*b", "a.*|b", "ab{1,2}", "a\\x62",
    ],
)  # fmt: skip
def test_a_pattern_is_anchored_at_both_ends_and_dot_is_any_character(text: str) -> None:
    pattern, twin = compile_pattern(text), re.compile(text, re.DOTALL)
    for value in VALUES:
        assert pattern.matches(value.encode()) == (twin.fullmatch(value) is not None), value


@pytest.mark.parametrize(
    ("text", "literals"),
    [
        ("a", (b"a",)),
        ("a|b|a", (b"a", b"b")),
        ("(a|b)", (b"a", b"b")),
        ("(?:a|)", (b"a", b"")),
        ("node\\.local:9100|x\\-y", (b"node.local:9100", b"x-y")),
        ("", (b"",)),
        ("a.b", None),
        ("a|b.", None),
        ("a\\d", None),
        ("(a)(b)", None),
    ],
)
def test_a_list_of_literals_is_seen_as_one(text: str, literals: tuple[bytes, ...] | None) -> None:
    assert compile_pattern(text).literals == literals


@pytest.mark.parametrize(
    ("text", "prefix", "needs_automaton"),
    [
        ("api.*", b"api", False),
        ("api\\..+", b"api.", False),
        (".*", b"", False),
        ("api-[0-9]", b"api-", True),
        ("ap?i", b"a", True),
        ("ab|a.*", b"", True),
        ("[a]b", b"", True),
    ],
)
def test_a_literal_prefix_is_taken_off(text: str, prefix: bytes, needs_automaton: bool) -> None:
    pattern = compile_pattern(text)
    assert pattern.prefix == prefix
    assert (pattern.matcher is not None) == needs_automaton


@pytest.mark.parametrize(
    "text", ["(", "a**", "[", "a)", "a)|(b", "\\", "a\\", "(?P<", "(?=a)", "\\1", "\udc80", "x\ud800.*"]
)
def test_a_malformed_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        compile_pattern(text)
    assert caught.value.reason == "regex_malformed"


@pytest.mark.parametrize(
    "text",
    [
        "a" * (PATTERN_BYTES_MAX + 1),
        "é" * (PATTERN_BYTES_MAX // 2 + 1),
        "((a{100}){100}){100}",
        "[ab]{1000}" * 12,
        "\\pL{1000}",
    ],
)
def test_a_pattern_over_a_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        compile_pattern(text)
    assert caught.value.reason == "regex_too_large"
    assert len(caught.value.message) < 300


def test_plain_text_up_to_the_limit_is_taken() -> None:
    assert compile_pattern("a" * PATTERN_BYTES_MAX).literals is not None
    assert compile_pattern("." + "a" * (PATTERN_BYTES_MAX - 1)).matcher is not None
