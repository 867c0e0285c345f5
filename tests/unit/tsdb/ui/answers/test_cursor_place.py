"""The place of the cursor: what completes each text."""

from __future__ import annotations

import pytest

from tsdb.model.selector import Matcher, MatchType
from tsdb.ui.answers.completion import CompletionKind, CursorPlace, cursor_place

NAME = Matcher(MatchType.EQUAL, "__name__", "cpu_seconds")
JOB = Matcher(MatchType.EQUAL, "job", "a b")


@pytest.mark.parametrize(
    ("before", "want"),
    [
        ("", CursorPlace(CompletionKind.EXPRESSION, "")),
        ("cpu_", CursorPlace(CompletionKind.EXPRESSION, "cpu_")),
        ("sum(ra", CursorPlace(CompletionKind.EXPRESSION, "ra")),
        ("a + b", CursorPlace(CompletionKind.EXPRESSION, "b")),
        ("a and b", CursorPlace(CompletionKind.EXPRESSION, "b")),
        ("clamp(x, ", CursorPlace(CompletionKind.EXPRESSION, "")),
        ("cpu_seconds{", CursorPlace(CompletionKind.LABEL, "", (NAME,))),
        ("cpu_seconds{jo", CursorPlace(CompletionKind.LABEL, "jo", (NAME,))),
        ('cpu_seconds{job="a b",mo', CursorPlace(CompletionKind.LABEL, "mo", (NAME, JOB))),
        ("{", CursorPlace(CompletionKind.LABEL, "")),
        ('cpu_seconds{mode="', CursorPlace(CompletionKind.VALUE, "", (NAME,), "mode")),
        ('cpu_seconds{job="a b",mode=~"us', CursorPlace(CompletionKind.VALUE, "us", (NAME, JOB), "mode")),
        ('{job!="x', CursorPlace(CompletionKind.VALUE, "x", (), "job")),
        ('{"a.b"="x', CursorPlace(CompletionKind.VALUE, "x", (), "a.b")),
        ("sum by (jo", CursorPlace(CompletionKind.LABEL, "jo")),
        ("sum(rate(cpu_seconds[5m])) by (", CursorPlace(CompletionKind.LABEL, "", (NAME,))),
        ("rate(cpu_seconds[", CursorPlace(CompletionKind.DURATION, "")),
        ("rate(cpu_seconds[5", CursorPlace(CompletionKind.DURATION, "5")),
        ("cpu_seconds ", CursorPlace(CompletionKind.KEYWORD, "")),
        ("cpu_seconds off", CursorPlace(CompletionKind.KEYWORD, "off")),
        ("sum(x) b", CursorPlace(CompletionKind.KEYWORD, "b")),
        ("1", CursorPlace(CompletionKind.NOTHING, "")),
        ('cpu_seconds{job="a b"', CursorPlace(CompletionKind.NOTHING, "")),
        ('label_replace(x, "a', CursorPlace(CompletionKind.NOTHING, "")),
        ("cpu $", CursorPlace(CompletionKind.NOTHING, "")),
        ("'", CursorPlace(CompletionKind.NOTHING, "")),
        ("}}}))]", CursorPlace(CompletionKind.KEYWORD, "")),
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
