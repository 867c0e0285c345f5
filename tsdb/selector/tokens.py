"""Tokens of PromQL: cuts a text into tokens with positions, and has a cursor over them and the values of strings."""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from tsdb.model.errors import InvalidRequest

QUERY_CHARS_MAX = 1 << 20  # Parsing takes some 0.1 s for 100,000 characters. PARTS_MAX bounds the memory of the tree.
# Bound of nested parentheses, calls, signs and right sides. The length of a chain of operators adds no depth.
NESTING_MAX = 1_000

PLAIN_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")  # A label name that needs no quotes.

BAD_QUERY = "bad_query"


class TextSpan(NamedTuple):
    """Characters [start, end) of a query."""

    start: int
    end: int

    def to(self, other: TextSpan) -> TextSpan:
        """The span from the start of this one to the end of the other."""
        return TextSpan(self.start, other.end)


class QueryError(InvalidRequest):
    """A query that cannot be evaluated, whatever the samples are. The message begins with `line:column: parse error: `.

    message: only the problem. text: the query. span: the wrong characters.
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


class Cursor:
    """Used by one thread. Raises QueryError for a query that is too long or has an unknown character."""

    def __init__(self, text: str) -> None:
        if len(text) > QUERY_CHARS_MAX:
            problem = f"query has {len(text)} characters; the limit is {QUERY_CHARS_MAX}"
            raise QueryError(problem, "", TextSpan(0, 0))
        self.text = text
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
        if self.token.symbol != symbol:
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
        if self.token.symbol != symbol:
            self.fail_unexpected(where, f'"{symbol}"')
        return self.take()

    def string(self) -> str:
        """Take a string. Returns its value."""
        token = self.take()
        try:
            return string_of(token.text)
        except ValueError as error:
            self.fail(str(error), token.span)

    def span_from(self, start: TextSpan) -> TextSpan:
        """The span from the start of a given span to the end of the last token."""
        return TextSpan(start.start, self.end)

    def fail(self, problem: str, span: TextSpan | None = None) -> NoReturn:
        """Raise for a span, or for the next token."""
        raise QueryError(problem, self.text, span or self.token.span)

    def fail_unexpected(self, where: str, expected: str = "") -> NoReturn:
        """Raise for the next token, which is not allowed here."""
        unbalanced = self._unbalanced()
        if unbalanced:
            # As in Prometheus, the position is behind a closing bracket.
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
        if self.token.symbol == ")" and opened[0] <= 0:
            return "unexpected right parenthesis ')'"
        if self.token.symbol == "]" and opened[1] <= 0:
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


class TokenKind(enum.Enum):
    """TokenKind of a token. The values are the words of error messages."""

    NAME = "identifier"
    NUMBER = "number"
    DURATION = "duration"
    STRING = "string"
    SYMBOL = ""
    END = "end of input"


class Token(NamedTuple):
    """text: as it stands in the query. word: the text of a name in lower case, because PromQL's keywords have no case;
    empty for another kind. symbol: the text of an operator, bracket or separator; empty for another kind.

    A parser compares words and symbols at each step, so that both are attributes.
    """

    kind: TokenKind
    text: str
    span: TextSpan
    word: str = ""
    symbol: str = ""

    @property
    def is_sign(self) -> bool:
        """Whether it is a plus or a minus."""
        return self.symbol in ("+", "-")

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
# The expression never goes back into a string that it has read (`++`). Positions for going back took 200 bytes a
# character.
_TOKEN = r"""
    \s*+
    (?:
    (?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![a-zA-Z0-9_.]))
  | (?P<number>(?:0[xX][0-9a-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)(?![a-zA-Z0-9_.]))
  | (?P<name>NAME)
  | (?P<string>"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+'|`[^`]*`)
  | (?P<symbol>==|!=|>=|<=|=~|!~|</|>/|[-+*/%^<>=(){}\[\],:@])
  | (?P<comment>\#[^\n]*)
    )
"""
_OUTSIDE = re.compile(_TOKEN.replace("NAME", _NAME), re.VERBOSE)
_INSIDE = re.compile(_TOKEN.replace("NAME", _NAME_IN_BRACKETS), re.VERBOSE)
_VALUES = {"number": TokenKind.NUMBER, "duration": TokenKind.DURATION, "string": TokenKind.STRING}
_NUMBER_START = re.compile(r"\.?\d[\w.]*")


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of a query; the last one has the kind END. Comments are left out. Raises QueryError at an unknown
    part."""
    at, pattern = 0, _OUTSIDE
    while (match := pattern.match(text, at)) is not None:
        group, part, at = match.lastgroup, match[match.lastindex or 0], match.end()
        span = TextSpan(at - len(part), at)
        if group == "symbol":
            if part in "[]":
                pattern = _INSIDE if part == "[" else _OUTSIDE
            yield Token(TokenKind.SYMBOL, part, span, symbol=part)
        elif group == "name":
            yield Token(TokenKind.NAME, part, span, word=part.lower())
        elif group != "comment":
            assert group is not None
            yield Token(_VALUES[group], part, span)
    at = len(text) - len(text[at:].lstrip())
    if at < len(text):
        raise _unknown(text, at)
    yield Token(TokenKind.END, "", TextSpan(at, at))


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


_ESCAPE = re.compile(r"\\([0-7]{3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\"}

_SHOWN_ESCAPES = {char: f"\\{code}" for code, char in _ESCAPES.items()} | {'"': '\\"'}


def string_of(text: str) -> str:
    """Value of a quoted string with the escapes of Go; a string in backticks has none.

    Bytes above 127 by \\x or octal are taken as parts of UTF-8, and bytes that are not UTF-8 become surrogates, as
    Python's `surrogateescape` has them. Raises ValueError.
    """
    body = text[1:-1]
    if text[0] == "`" or "\\" not in body:
        return body
    pieces: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[at : match.start()].encode(errors="surrogateescape"))
        pieces.append(_unescaped(match.group(1), text[0]))
        at = match.end()
    pieces.append(body[at:].encode(errors="surrogateescape"))
    return b"".join(pieces).decode(errors="surrogateescape")


def _unescaped(code: str, quote: str) -> bytes:
    if len(code) == 3 and code[0] in "01234567":
        value = int(code, 8)
        if value > 255:
            raise ValueError(f"octal escape value {value} > 255")
        return bytes([value])
    if code[0] == "x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0] in "uU" and len(code) > 1:
        value = int(code[1:], 16)
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            raise ValueError("escape sequence is an invalid Unicode code point")
        return chr(value).encode()
    if code == quote:
        return code.encode()
    if code in _ESCAPES:
        return _ESCAPES[code].encode()
    raise ValueError(f"unknown escape sequence \\{code}")


def quoted(value: str) -> str:
    """A string in double quotes that `string_of` reads back."""
    out = []
    for char in value:
        if char in _SHOWN_ESCAPES:
            out.append(_SHOWN_ESCAPES[char])
        elif 0xDC80 <= ord(char) <= 0xDCFF:
            out.append(f"\\x{ord(char) - 0xDC00:02x}")
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        else:
            out.append(f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else f"\\u{ord(char):04x}")
    return f'"{"".join(out)}"'
