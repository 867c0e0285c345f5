"""The excerpt of a query has a caret exactly below the place of an error."""

from __future__ import annotations

import random

import pytest

from tsdb.cli.terminal.errors import CUT, excerpt
from tsdb.selector.tokens import place

LETTERS = "abcxyz09 \t\nÄé日本\N{COMBINING ACUTE ACCENT}\x1b\x00\u200b\N{GRINNING FACE}"


def test_the_caret_is_below_the_place_on_its_line() -> None:
    assert excerpt("up +\n  * 2\n", "2:3: parse error: unexpected") == "    * 2\n    ^"
    assert excerpt("sum(up", "1:7: parse error: unexpected end") == "  sum(up\n        ^"


def test_wide_characters_take_two_columns() -> None:
    assert excerpt('{a="日本"} %% 1', "1:15: parse error: x").splitlines()[1] == "  " + " " * 12 + "^"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("up", "a hole"),
        ("up", "1:1: another kind of text"),
        ("up", "9:1: parse error: no such line"),
        ("", "1:1: parse error: no expression"),
        (" \n ", "2:1: parse error: no expression"),
    ],
)
def test_without_a_place_in_the_query_there_is_no_excerpt(query: str, message: str) -> None:
    assert excerpt(query, message) == ""


def test_a_long_line_is_cut_around_the_place() -> None:
    query = "a" * 500_000 + "!" + "b" * 500_000
    line, caret = excerpt(query, "1:500001: parse error: unexpected").splitlines()
    assert line[caret.index("^")] == "!"
    assert line.strip().startswith(CUT)
    assert line.endswith(CUT)
    assert len(line) == 80


def test_any_text_has_one_line_and_a_caret_within_it() -> None:
    rng = random.Random(17)
    for _ in range(500):
        query = "".join(rng.choices(LETTERS, k=rng.randrange(1, 60)))
        at = rng.randrange(len(query) + 1)
        found = excerpt(query, f"{place(query, at)}: parse error: x")
        if found:
            line, caret = found.split("\n")
            assert line.isprintable()
            assert caret.strip() == "^"
            assert len(caret) <= 2 * len(line) + 1
