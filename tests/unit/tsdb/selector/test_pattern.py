from __future__ import annotations

import re
from itertools import product

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from tsdb.model.errors import InvalidRequest
from tsdb.selector.pattern import PATTERN_BYTES_MAX, REGEX_BYTES_MAX, compile_pattern, literals_of

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


LISTS = {
    "": {""},
    "a": {"a"},
    "a|b|a": {"a", "b"},
    "(a|b)": {"a", "b"},
    "(?:a|)": {"a", ""},
    "((a)|(?:b|(c)))": {"a", "b", "c"},
    "(?P<x>a|b)": {"a", "b"},
    "(a)(b)": {"ab"},
    "host-(a|b)\\.local:(80|443)": {f"host-{one}.local:{port}" for one in "ab" for port in (80, 443)},
    "node\\.local:9100|x\\-y": {"node.local:9100", "x-y"},
    "10\\.0\\.0\\.[1-3]": {"10.0.0.1", "10.0.0.2", "10.0.0.3"},
    "[ab-c-]x|[.*]": {"ax", "bx", "cx", "-x", ".", "*"},
    "[é-ë]": {"é", "ê", "ë"},
    "^a$": {"a"},
    "^a|b$|^^c": {"a", "b", "c"},
    "^(a|b)$": {"a", "b"},
    "^$": {""},
}
NO_LISTS = [
    *(
        "a.b",
        "a|b.",
        "a\\d",
        "a\\Q.\\E",
        "ab?",
        "(a|b)*",
        "[ab]+",
        "a{2}",
        "a^b",
        "a$b",
        "(^a)",
        "(?i)a|b",
        "(?i:a)",
        "a\\x62",
    ),
    *(
        "[^a]",
        "[[:alpha:]]",
        "[\\d]",
        "[a-c-e]",
        "[]a]",
        "[\ud7ff-\ue000]",
        "[a-z]{2}",
        "[a-z]" * 4,
        "(" * 30 + "a" + ")" * 30,
    ),
]


@pytest.mark.parametrize(("text", "literals"), LISTS.items())
def test_a_list_of_literals_is_seen_as_one(text: str, literals: set[str]) -> None:
    assert compile_pattern(text).literals == frozenset(one.encode() for one in literals)
    twin = re.compile(text, re.DOTALL)
    for value in [*VALUES, *literals]:
        assert (twin.fullmatch(value) is not None) == (value in literals), value


@pytest.mark.parametrize("text", NO_LISTS)
def test_other_patterns_are_no_lists(text: str) -> None:
    assert literals_of(text) is None


@given(st.text("ab|()[]-^$\\.*?:", max_size=12))
@settings(max_examples=examples(500))
def test_a_list_has_the_values_that_re2_matches(text: str) -> None:
    literals = literals_of(text)
    if literals is None:
        return
    options = re2.Options()
    options.log_errors = False
    twin = re2.compile(text, options)  # No list is malformed.
    assert all(twin.fullmatch(one.decode()) for one in literals)
    for value in map("".join, product("ab.-", repeat=2)):
        assert (twin.fullmatch(value) is not None) == (value.encode() in literals), value


@pytest.mark.parametrize(
    "text",
    [
        "|".join(f"host-{row}:9100" for row in range(40_000)),
        "(" + "|".join(f"host-{row}" for row in range(40_000)) + ")\\.local:9100",
        "^(?:" + "|".join(f"host-{row}\\.local:9100" for row in range(25_000)) + ")$",
        "\\." * 500_000,
        "(a)" * 300_000,
    ],
    ids=["plain", "a common end", "escapes", "one long value", "groups"],
)
def test_a_long_list_of_literals_needs_no_automaton(text: str) -> None:
    assert compile_pattern(text).literals


@pytest.mark.parametrize(
    "text",
    [
        "|".join(f"10.0.{row // 256}.{row % 256}:9100" for row in range(4_000)),
        "(?i)" + "|".join(f"host-{row}" for row in range(4_000)),
        ".{1,1000}",
        "[^/]{1,1000}/.{1,1000}",
        "\\w{1,1000}",
        "a{1,1000}",
    ],
)
def test_a_pattern_of_a_dashboard_is_compiled(text: str) -> None:
    pattern = compile_pattern(text)
    assert pattern.matcher is not None
    assert compile_pattern(text).matcher is pattern.matcher


def test_values_that_multiply_without_a_bound_are_left_to_re2() -> None:
    for text in ("[a-z]" * 200_000, "(a|b)" * 200_000, "x" * 500_000 + "(a|b|c|d|e|f|g|h|i|j)" * 2):
        assert literals_of(text) is None


@pytest.mark.parametrize(
    ("text", "prefix", "needs_automaton"),
    [
        ("api.*", b"api", False),
        ("api\\..+", b"api.", False),
        (".*", b"", False),
        ("api-[0-9]+", b"api-", True),
        ("ap?i", b"a", True),
        ("ab|a.*", b"", True),
        ("[a]b+", b"", True),
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
        "." * (REGEX_BYTES_MAX + 1),
        ".{1000}" * 20,
        "((a{100}){100}){100}",
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
    assert compile_pattern("." + "a" * 90_000).matcher is not None
