"""Cursor: a place in the tokens of a query, and the bound on nesting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tsdb.promql.syntax.errors import QueryError, Span
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.literals import string_of
from tsdb.promql.syntax.tokens import Kind, Token, tokenize

QUERY_CHARS_MAX = 65_536
NESTING_MAX = 100  # Of parentheses and calls. Python's stack has room for about twice as many.


class Cursor:
    """Used by one thread. Raises QueryError for a query that is too long or has an unknown character."""

    def __init__(self, text: str, features: Features) -> None:
        if len(text) > QUERY_CHARS_MAX:
            problem = f"query has {len(text)} characters; the limit is {QUERY_CHARS_MAX}"
            raise QueryError(problem, "", Span(0, 0))
        self.text = text
        self.features = features
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """The next token, not taken yet."""
        return self._tokens[self._at]

    @property
    def following(self) -> Token:
        """The token after the next one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    @property
    def at_end(self) -> bool:
        """Whether no token is left."""
        return self.token.kind is Kind.END

    @property
    def end(self) -> int:
        """End of the last token that was taken."""
        return self._tokens[self._at - 1].span.end if self._at else 0

    def take(self) -> Token:
        """The next token, and go on. The end is never passed."""
        token = self.token
        if token.kind is not Kind.END:
            self._at += 1
        return token

    def skip(self, symbol: str) -> bool:
        """Take a symbol if it is the next token."""
        if not self.token.is_symbol(symbol):
            return False
        self.take()
        return True

    def skip_word(self, word: str) -> bool:
        """Take a keyword if it is the next token."""
        if self.token.word != word:
            return False
        self.take()
        return True

    def expect(self, symbol: str, where: str) -> Token:
        """Take a symbol, or raise."""
        if not self.token.is_symbol(symbol):
            self.fail_unexpected(where, f'"{symbol}"')
        return self.take()

    def string(self) -> str:
        """Take a string; its value."""
        token = self.take()
        try:
            return string_of(token.text)
        except ValueError as error:
            self.fail(str(error), token.span)

    def span_from(self, start: Span) -> Span:
        """From the start of a span to the end of the last token."""
        return Span(start.start, self.end)

    def fail(self, problem: str, span: Span | None = None) -> NoReturn:
        """Raise for a span, or for the next token."""
        raise QueryError(problem, self.text, span or self.token.span)

    def fail_unexpected(self, where: str, expected: str = "") -> NoReturn:
        """Raise for the next token, which has no place here."""
        unbalanced = self._unbalanced()
        if unbalanced:
            # The place is behind a closing bracket, as Prometheus has it.
            self.fail(unbalanced, Span(self.token.span.end, self.token.span.end))
        wanted = f", expected {expected}" if expected else ""
        self.fail(f"unexpected {self.token}{f' in {where}' if where else ''}{wanted}")

    def _unbalanced(self) -> str:
        """The problem of a bracket without a partner: at the end of the query, or at a closing one."""
        opened = [
            sum(token.is_symbol(left) - token.is_symbol(right) for token in self._tokens[: self._at])
            for left, right in ("()", "[]", "{}")
        ]
        if self.at_end:
            problems = ("unclosed left parenthesis", "unclosed left bracket", "unexpected end of input inside braces")
            return next((problem for problem, count in zip(problems, opened, strict=True) if count > 0), "")
        if self.token.is_symbol(")") and opened[0] <= 0:
            return "unexpected right parenthesis ')'"
        if self.token.is_symbol("]") and opened[1] <= 0:
            return "unexpected right bracket ']'"
        return ""

    @contextmanager
    def nested(self) -> Iterator[None]:
        """One level deeper while the block runs."""
        self._depth += 1
        if self._depth > NESTING_MAX:
            self.fail(f"query is nested more than {NESTING_MAX} levels deep")
        yield
        self._depth -= 1
