"""The place of the cursor: what completes each text."""

from __future__ import annotations

import pytest

from tsdb.model.selector import Matcher, MatchType
from tsdb.ui.answers.cursor_place import CursorPlace, Wanted, cursor_place

NAME = Matcher(MatchType.EQUAL, "__name__", "cpu_seconds")
JOB = Matcher(MatchType.EQUAL, "job", "a b")


@pytest.mark.parametrize(
    ("before", "want"),
    [
        ("", CursorPlace(Wanted.EXPRESSION, "")),
        ("cpu_", CursorPlace(Wanted.EXPRESSION, "cpu_")),
        ("sum(ra", CursorPlace(Wanted.EXPRESSION, "ra")),
        ("a + b", CursorPlace(Wanted.EXPRESSION, "b")),
        ("a and b", CursorPlace(Wanted.EXPRESSION, "b")),
        ("clamp(x, ", CursorPlace(Wanted.EXPRESSION, "")),
        ("cpu_seconds{", CursorPlace(Wanted.LABEL, "", (NAME,))),
        ("cpu_seconds{jo", CursorPlace(Wanted.LABEL, "jo", (NAME,))),
        ('cpu_seconds{job="a b",mo', CursorPlace(Wanted.LABEL, "mo", (NAME, JOB))),
        ("{", CursorPlace(Wanted.LABEL, "")),
        ('cpu_seconds{mode="', CursorPlace(Wanted.VALUE, "", (NAME,), "mode")),
        ('cpu_seconds{job="a b",mode=~"us', CursorPlace(Wanted.VALUE, "us", (NAME, JOB), "mode")),
        ('{job!="x', CursorPlace(Wanted.VALUE, "x", (), "job")),
        ('{"a.b"="x', CursorPlace(Wanted.VALUE, "x", (), "a.b")),
        ("sum by (jo", CursorPlace(Wanted.LABEL, "jo")),
        ("sum(rate(cpu_seconds[5m])) by (", CursorPlace(Wanted.LABEL, "", (NAME,))),
        ("rate(cpu_seconds[", CursorPlace(Wanted.DURATION, "")),
        ("rate(cpu_seconds[5", CursorPlace(Wanted.DURATION, "5")),
        ("cpu_seconds ", CursorPlace(Wanted.KEYWORD, "")),
        ("cpu_seconds off", CursorPlace(Wanted.KEYWORD, "off")),
        ("sum(x) b", CursorPlace(Wanted.KEYWORD, "b")),
        ("1", CursorPlace(Wanted.NOTHING, "")),
        ('cpu_seconds{job="a b"', CursorPlace(Wanted.NOTHING, "")),
        ('label_replace(x, "a', CursorPlace(Wanted.NOTHING, "")),
        ("cpu $", CursorPlace(Wanted.NOTHING, "")),
        ("'", CursorPlace(Wanted.NOTHING, "")),
        ("}}}))]", CursorPlace(Wanted.KEYWORD, "")),
    ],
)
def test_the_text_before_the_cursor_decides(before: str, want: CursorPlace) -> None:
    found = cursor_place(before)
    assert (found.wanted, found.prefix, tuple(found.matchers), found.label) == (
        want.wanted,
        want.prefix,
        tuple(want.matchers),
        want.label,
    )
