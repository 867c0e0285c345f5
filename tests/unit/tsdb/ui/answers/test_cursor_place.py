"""The place of the cursor: what completes each text."""

from __future__ import annotations

import pytest

from tsdb.model.selector import Matcher, MatchType
from tsdb.ui.answers.completion import CompletionKind, CursorContext, cursor_place

NAME = Matcher(MatchType.EQUAL, "__name__", "cpu_seconds")
JOB = Matcher(MatchType.EQUAL, "job", "a b")


@pytest.mark.parametrize(
    ("before", "want"),
    [
        ("", CursorContext(CompletionKind.EXPRESSION, "")),
        ("cpu_", CursorContext(CompletionKind.EXPRESSION, "cpu_")),
        ("sum(ra", CursorContext(CompletionKind.EXPRESSION, "ra")),
        ("a + b", CursorContext(CompletionKind.EXPRESSION, "b")),
        ("a and b", CursorContext(CompletionKind.EXPRESSION, "b")),
        ("clamp(x, ", CursorContext(CompletionKind.EXPRESSION, "")),
        ("cpu_seconds{", CursorContext(CompletionKind.LABEL, "", (NAME,))),
        ("cpu_seconds{jo", CursorContext(CompletionKind.LABEL, "jo", (NAME,))),
        ('cpu_seconds{job="a b",mo', CursorContext(CompletionKind.LABEL, "mo", (NAME, JOB))),
        ("{", CursorContext(CompletionKind.LABEL, "")),
        ('cpu_seconds{mode="', CursorContext(CompletionKind.VALUE, "", (NAME,), "mode")),
        ('cpu_seconds{job="a b",mode=~"us', CursorContext(CompletionKind.VALUE, "us", (NAME, JOB), "mode")),
        ('{job!="x', CursorContext(CompletionKind.VALUE, "x", (), "job")),
        ('{"a.b"="x', CursorContext(CompletionKind.VALUE, "x", (), "a.b")),
        ("sum by (jo", CursorContext(CompletionKind.LABEL, "jo")),
        ("sum(rate(cpu_seconds[5m])) by (", CursorContext(CompletionKind.LABEL, "", (NAME,))),
        ("rate(cpu_seconds[", CursorContext(CompletionKind.DURATION, "")),
        ("rate(cpu_seconds[5", CursorContext(CompletionKind.DURATION, "5")),
        ("cpu_seconds ", CursorContext(CompletionKind.KEYWORD, "")),
        ("cpu_seconds off", CursorContext(CompletionKind.KEYWORD, "off")),
        ("sum(x) b", CursorContext(CompletionKind.KEYWORD, "b")),
        ("1", CursorContext(CompletionKind.NOTHING, "")),
        ('cpu_seconds{job="a b"', CursorContext(CompletionKind.NOTHING, "")),
        ('label_replace(x, "a', CursorContext(CompletionKind.NOTHING, "")),
        ("cpu $", CursorContext(CompletionKind.NOTHING, "")),
        ("'", CursorContext(CompletionKind.NOTHING, "")),
        ("}}}))]", CursorContext(CompletionKind.KEYWORD, "")),
    ],
)
def test_the_text_before_the_cursor_decides(before: str, want: CursorContext) -> None:
    found = cursor_place(before)
    assert (found.wanted, found.prefix, tuple(found.matchers), found.label) == (
        want.wanted,
        want.prefix,
        tuple(want.matchers),
        want.label,
    )
