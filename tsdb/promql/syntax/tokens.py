"""Tokens of PromQL, cut by one regular expression."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tsdb.promql.syntax.errors import QueryError, TextSpan


class TokenKind(enum.Enum):
    """Kind of a token. The values are the words of error messages."""

    NAME = "identifier"
    NUMBER = "number"
    DURATION = "duration"
    STRING = "string"
    SYMBOL = ""
    END = "end of input"


@dataclass(frozen=True, slots=True)
class Token:
    """text: as it stands in the query."""

    kind: TokenKind
    text: str
    span: TextSpan

    @property
    def word(self) -> str:
        """The text in lower case: PromQL's keywords have no case."""
        return self.text.lower() if self.kind is TokenKind.NAME else ""

    def is_symbol(self, text: str) -> bool:
        """Whether it is this operator, bracket or separator."""
        return self.kind is TokenKind.SYMBOL and self.text == text

    @property
    def is_sign(self) -> bool:
        """Whether it is a plus or a minus."""
        return self.kind is TokenKind.SYMBOL and self.text in ("+", "-")

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return str(self.kind.value)
        if self.kind is TokenKind.SYMBOL:
            return f'"{self.text}"'
        text = self.text if self.kind is TokenKind.STRING else f'"{self.text}"'
        return f"{self.kind.value} {text}"


# A colon begins or continues a metric's name, except between square brackets, where it separates range and step.
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_NAME_IN_BRACKETS = r"[a-zA-Z_][a-zA-Z0-9_]*"
# A string gives nothing back once it is read (`++`): its places to go back to took 200 bytes a character.
_TOKEN = r"""
    (?P<space>\s+|\#[^\n]*)
  | (?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![a-zA-Z0-9_.]))
  | (?P<number>(?:0[xX][0-9a-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)(?![a-zA-Z0-9_.]))
  | (?P<name>NAME)
  | (?P<string>"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+'|`[^`]*`)
  | (?P<symbol>==|!=|>=|<=|=~|!~|</|>/|[-+*/%^<>=(){}\[\],:@])
"""
_OUTSIDE = re.compile(_TOKEN.replace("NAME", _NAME), re.VERBOSE)
_INSIDE = re.compile(_TOKEN.replace("NAME", _NAME_IN_BRACKETS), re.VERBOSE)
_KINDS = {
    "name": TokenKind.NAME,
    "number": TokenKind.NUMBER,
    "duration": TokenKind.DURATION,
    "string": TokenKind.STRING,
    "symbol": TokenKind.SYMBOL,
}
_NUMBER_START = re.compile(r"\.?\d[\w.]*")


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of a query, the last one of kind END. Comments are left out. Raises QueryError at an unknown part."""
    at, in_brackets = 0, False
    while at < len(text):
        match = (_INSIDE if in_brackets else _OUTSIDE).match(text, at)
        if match is None:
            raise _unknown(text, at)
        group = match.lastgroup
        if group != "space":
            assert group is not None
            yield Token(_KINDS[group], match.group(), TextSpan(at, match.end()))
            if match.group() in ("[", "]"):
                in_brackets = match.group() == "["
        at = match.end()
    yield Token(TokenKind.END, "", TextSpan(len(text), len(text)))


def _unknown(text: str, at: int) -> QueryError:
    number = _NUMBER_START.match(text, at)
    if number is not None:
        return QueryError(f'bad number or duration syntax: "{number.group()}"', text, TextSpan(at, number.end()))
    if text[at] in "\"'`":
        return QueryError("unterminated quoted string", text, TextSpan(at, len(text)))
    if text[at] == "!":
        following = f"'{text[at + 1]}'" if at + 1 < len(text) else "end of input"
        return QueryError(f"unexpected character after '!': {following}", text, TextSpan(at, at + 1))
    return QueryError(f"unexpected character: '{text[at]}'", text, TextSpan(at, at + 1))
