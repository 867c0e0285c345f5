"""Errors of a query's text, with their position."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.model.errors import InvalidRequest

BAD_QUERY = "bad_query"


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Characters [start, end) of a query."""

    start: int
    end: int

    def to(self, other: TextSpan) -> TextSpan:
        """From the start of this one to the end of the other."""
        return TextSpan(self.start, other.end)


class QueryError(InvalidRequest):
    """A query that cannot be evaluated, whatever the samples are. The message begins with `line:column: parse error: `.

    message: the problem alone. text: the query. span: the characters at fault.
    """

    def __init__(self, problem: str, text: str, span: TextSpan) -> None:
        super().__init__(f"{place(text, span.start)}: parse error: {problem}", reason=BAD_QUERY)
        self.problem = problem
        self.span = span


def place(text: str, at: int) -> str:
    """`line:column` of a character, both from 1. A column counts bytes of UTF-8, as Prometheus does."""
    before = text[:at]
    line = before.rpartition("\n")[2]
    return f"{before.count(chr(10)) + 1}:{len(line.encode(errors='replace')) + 1}"
