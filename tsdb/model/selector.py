"""Selectors in the notation of Prometheus, `name{label="value",other=~"re.*"}`, parsed into matchers."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tsdb.model.errors import InvalidRequest

SELECTOR_CHARS_MAX = 1 << 20  # Checked before any parsing. A list of 50,000 instances is as long.
MATCHERS_MAX = 1_000  # Each is a search among the values of its label.

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:.]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.]*")
_SPACE = re.compile(r"\s*")
_OPERATOR = re.compile(r"=~|!~|!=|=")
# A string gives nothing back once it is read (`++`): its places to go back to took 200 bytes a character.
_STRING = re.compile(r'"((?:[^"\\\n]++|\\.)*+)"|\'((?:[^\'\\\n]++|\\.)*+)\'|`([^`]*)`', re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class MatchType(enum.Enum):
    """Comparison of a matcher. The values are those of the wire (common.proto)."""

    EQUAL = 0
    NOT_EQUAL = 1
    REGEX = 2
    NOT_REGEX = 3


MATCH_TYPES = {
    "=": MatchType.EQUAL,
    "!=": MatchType.NOT_EQUAL,
    "=~": MatchType.REGEX,
    "!~": MatchType.NOT_REGEX,
}


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label condition; an absent label has the value "". Regular expressions are RE2, anchored at both ends."""

    type: MatchType
    name: str
    value: str


def chars_of(matchers: Iterable[Matcher]) -> int:
    """Characters of the texts of matchers: what a cache takes for its key."""
    return sum(len(matcher.name) + len(matcher.value) for matcher in matchers)


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Parse a selector. Raises InvalidRequest (bad_selector) with the position. Does not check the number of series."""
    if len(text) > SELECTOR_CHARS_MAX:
        raise InvalidRequest(
            f"selector has {len(text)} characters; limit is {SELECTOR_CHARS_MAX}", reason="bad_selector"
        )
    return _Parser(text).selector()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def selector(self) -> tuple[Matcher, ...]:
        matchers: list[Matcher] = []
        name = self.take(_NAME)
        if name:
            matchers.append(Matcher(MatchType.EQUAL, "__name__", name))
        if self.literal("{"):
            self.matchers_into(matchers)
        if not matchers:
            self.fail('a metric name or {label="value"}')
        self.skip_space()
        if self.at != len(self.text):
            self.fail("the end of the selector")
        return tuple(matchers)

    def matchers_into(self, matchers: list[Matcher]) -> None:
        while not self.literal("}"):
            matchers.append(self.matcher())
            if len(matchers) > MATCHERS_MAX:
                raise InvalidRequest(f"selector has over {MATCHERS_MAX} matchers", reason="bad_selector")
            if not self.literal(","):
                if not self.literal("}"):
                    self.fail("`,` or `}`")
                return

    def matcher(self) -> Matcher:
        name = self.string(optional=True)
        if name is None:
            name = self.take(_LABEL)
        if not name:
            self.fail("a label name")
        operator = self.take(_OPERATOR)
        if not operator:
            self.fail("one of = != =~ !~")
        value = self.string()
        assert value is not None
        return Matcher(MATCH_TYPES[operator], name, value)

    def string(self, *, optional: bool = False) -> str | None:
        self.skip_space()
        match = _STRING.match(self.text, self.at)
        if match is None:
            if not optional:
                self.fail("a quoted string")
            return None
        self.at = match.end()
        if match.group(3) is not None:
            return match.group(3)
        quoted = match.group(1) if match.group(1) is not None else match.group(2)
        return _ESCAPE.sub(self.unescape, quoted)

    def unescape(self, match: re.Match[str]) -> str:
        code = match.group(1)
        if len(code) > 1:
            return self.character(int(code[1:], 16))
        if code in _ESCAPES:
            return _ESCAPES[code]
        if code in "\\\"'":
            return code
        raise InvalidRequest(f"selector: unknown escape \\{code}", reason="bad_selector")

    def character(self, number: int) -> str:
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise InvalidRequest(f"selector: escape of {number:#x}, which is no character", reason="bad_selector")
        return chr(number)

    def take(self, pattern: re.Pattern[str]) -> str:
        self.skip_space()
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match.group()

    def literal(self, char: str) -> bool:
        self.skip_space()
        if not self.text.startswith(char, self.at):
            return False
        self.at += 1
        return True

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def fail(self, wanted: str) -> None:
        got = repr(self.text[self.at : self.at + 20]) if self.at < len(self.text) else "the end"
        raise InvalidRequest(f"selector: at character {self.at} got {got}, want {wanted}", reason="bad_selector")
