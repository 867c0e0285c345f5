"""Matchers whose text is not UTF-8 hold for every series or for no series, since all labels are UTF-8."""

from __future__ import annotations

import pytest

from tsdb.model.selector import Matcher, MatchType
from tsdb.query.promql.storage import valid_matchers

UP = Matcher(MatchType.EQUAL, "__name__", "up")
BAD = "a\udcff"


@pytest.mark.parametrize(
    ("matcher", "holds"),
    [
        (Matcher(MatchType.EQUAL, "a", BAD), False),
        (Matcher(MatchType.NOT_EQUAL, "a", BAD), True),
        (Matcher(MatchType.EQUAL, BAD, "a"), False),
        (Matcher(MatchType.EQUAL, BAD, ""), True),
        (Matcher(MatchType.NOT_EQUAL, BAD, ""), False),
        (Matcher(MatchType.REGEX, BAD, "a|"), True),
        (Matcher(MatchType.NOT_REGEX, BAD, ".+"), True),
        (Matcher(MatchType.NOT_EQUAL, BAD, BAD), True),
    ],
)
def test_matchers_that_are_no_utf_8(matcher: Matcher, holds: bool) -> None:
    assert valid_matchers([UP, matcher]) == ([UP] if holds else None)


def test_other_matchers_stay() -> None:
    matchers = [UP, Matcher(MatchType.EQUAL, "é", "\U0001f600")]
    assert valid_matchers(matchers) == matchers
