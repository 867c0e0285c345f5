"""Cursor: a place in the tokens of a query, and the bounds on its text and its nesting."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from tsdb.promql.syntax.errors import QueryError, TextSpan
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.literals import string_of
from tsdb.promql.syntax.tokens import Token, TokenKind, tokens_of

QUERY_CHARS_MAX = 1 << 20  # Parsing takes some 0.1 s for 100,000 characters. PARTS_MAX bounds the memory of the tree.
NESTING_MAX = 1_000  # Of parentheses, calls, signs and right sides. A chain of operators is no deeper for its length.


class Cursor:
    """Used by one thread. Raises QueryError for a query that is too long or has an unknown character."""

    def __init__(self, text: str, features: Features) -> None:
        if len(text) > QUERY_CHARS_MAX:
            problem = f"query has {len(text)} characters; the limit is {QUERY_CHARS_MAX}"
            raise QueryError(problem, "", TextSpan(0, 0))
        self.text = text
        self.features = features
        # Tokens are cut when the parser comes to them: those of a long text take 200 bytes each.
        self._tokens = tokens_of(text)
        self.token: Token = next(self._tokens)
        """The next token, not taken yet."""
        self.end = 0
        """End of the last token that was taken."""
        self._following: Token | None = None
        self._depth = 0

    @property
    def following(self) -> Token:
        """The token after the next one."""
        if self._following is None:
            self._following = next(self._tokens, self.token)
        return self._following

    @property
    def at_end(self) -> bool:
        """Whether no token is left."""
        return self.token.kind is TokenKind.END

    def take(self) -> Token:
        """The next token, and go on. The end is never passed."""
        token = self.token
        if token.kind is not TokenKind.END:
            self.end = token.span.end
            self.token = self._following or next(self._tokens)
            self._following = None
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

    def span_from(self, start: TextSpan) -> TextSpan:
        """From the start of a span to the end of the last token."""
        return TextSpan(start.start, self.end)

    def fail(self, problem: str, span: TextSpan | None = None) -> NoReturn:
        """Raise for a span, or for the next token."""
        raise QueryError(problem, self.text, span or self.token.span)

    def fail_unexpected(self, where: str, expected: str = "") -> NoReturn:
        """Raise for the next token, which has no place here."""
        unbalanced = self._unbalanced()
        if unbalanced:
            # The place is behind a closing bracket, as Prometheus has it.
            self.fail(unbalanced, TextSpan(self.token.span.end, self.token.span.end))
        wanted = f", expected {expected}" if expected else ""
        self.fail(f"unexpected {self.token}{f' in {where}' if where else ''}{wanted}")

    def _unbalanced(self) -> str:
        """The problem of a bracket without a partner: at the end of the query, or at a closing one."""
        before = Counter(token.text for token in tokens_of(self.text[: self.end]) if token.kind is TokenKind.SYMBOL)
        opened = [before[left] - before[right] for left, right in ("()", "[]", "{}")]
        if self.at_end:
            problems = ("unclosed left parenthesis", "unclosed left bracket", "unexpected end of input inside braces")
            return next((problem for problem, count in zip(problems, opened, strict=True) if count > 0), "")
        if self.token.is_symbol(")") and opened[0] <= 0:
            return "unexpected right parenthesis ')'"
        if self.token.is_symbol("]") and opened[1] <= 0:
            return "unexpected right bracket ']'"
        return ""

    def enter(self) -> None:
        """Go one level deeper, until `leave`."""
        self._depth += 1
        if self._depth > NESTING_MAX:
            self.fail(f"query is nested more than {NESTING_MAX} levels deep")

    def leave(self) -> None:
        """Go back to the level before `enter`."""
        self._depth -= 1
