"""Literal list: the values of a pattern that matches a few whole values, such as `(a|b)\\.local` or `^node[1-3]$`.

Groups and classes are multiplied out. A pattern with another construct, or with too many values, is no list: RE2 then
decides, with the same result.
"""

from __future__ import annotations

import re

VALUES_MAX = 100_000  # Of groups and classes that are multiplied out. A plain list has as many as its text.
VALUES_CHARS_MAX = 4 << 20
RANGE_MAX = 1_000  # Of a class. A longer one could have surrogates in it.
NESTING_MAX = 20

_META = frozenset(r".^$*+?()[]{}|\\")
_ANY_META = re.compile(r"[.^$*+?()\[\]{}\\]")
_RUN = re.compile(r"[^.^$*+?()\[\]{}|\\]+")
_GROUP = re.compile(r"\((?:\?:|\?P?<[a-zA-Z_]\w*>)?(?!\?)", re.ASCII)
_CLASS = re.compile(r"\[([^\^\[\]\\][^\[\]\\]*)\]")


def literals_of(text: str) -> frozenset[bytes] | None:
    """All values that match the whole pattern; None for a pattern that is no list of literals."""
    if _ANY_META.search(text) is None:
        return frozenset(text.encode().split(b"|"))
    parser = _Parser(text)
    try:
        found = parser.alternatives(0)
    except _NoListError:
        return None
    # Python's classes and groups are those of RE2, but a closing bracket too many is an error.
    return frozenset(one.encode() for one in found) if parser.at == len(text) else None


def plain_at(text: str, position: int) -> tuple[str | None, int]:
    """(the character that stands for itself at a position, position after it); None for anything else."""
    char = text[position]
    if char not in _META:
        return char, position + 1
    escaped = text[position + 1 : position + 2]
    # An escaped letter or digit is a class or a code; RE2 itself refuses those it does not know.
    if char == "\\" and escaped and escaped.isascii() and not escaped.isalnum() and escaped != "_":
        return escaped, position + 2
    return None, position


class _NoListError(Exception):
    """The pattern is no list of literals."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def alternatives(self, depth: int) -> list[str]:
        """The values up to a closing parenthesis or the end."""
        if depth > NESTING_MAX:
            raise _NoListError
        found = self.sequence(depth)
        while self.text[self.at : self.at + 1] == "|":
            self.at += 1
            found += self.sequence(depth)
        return found

    def sequence(self, depth: int) -> list[str]:
        """The values of one alternative."""
        text = self.text
        found: list[str] = [""]
        plain: list[str] = []  # The text behind all of `found`, in pieces.
        # The pattern is anchored, so that an anchor at the edge of an alternative of the whole adds nothing.
        while not depth and text.startswith("^", self.at):
            self.at += 1
        while self.at < len(text) and text[self.at] not in "|)":
            if not depth and text[self.at] == "$":
                self.at += 1
                if text[self.at : self.at + 1] not in ("", "|"):
                    raise _NoListError
                break
            values = self.piece(depth)
            if len(values) == 1:
                plain += values
            else:
                found, plain = _joined(_joined(found, ["".join(plain)]), values), []
        return _joined(found, ["".join(plain)])

    def piece(self, depth: int) -> list[str]:
        """The values of a run of plain characters, a group or a class, without a repetition behind it."""
        text, start = self.text, self.at
        if run := _RUN.match(text, start):
            self.at = run.end()
            found = [run.group()]
        elif group := _GROUP.match(text, start):
            self.at = group.end()
            found = self.alternatives(depth + 1)
            if not text.startswith(")", self.at):
                raise _NoListError
            self.at += 1
        elif one_of := _CLASS.match(text, start):
            self.at = one_of.end()
            found = _members(one_of.group(1))
        else:
            char, self.at = plain_at(text, start)
            if char is None:
                raise _NoListError
            found = [char]
        if text[self.at : self.at + 1] in ("*", "+", "?", "{"):
            raise _NoListError
        return found


def _joined(heads: list[str], tails: list[str]) -> list[str]:
    if heads == [""] or tails == [""]:
        return tails if heads == [""] else heads
    chars = len(heads) * sum(map(len, tails)) + len(tails) * sum(map(len, heads))
    if len(heads) * len(tails) > VALUES_MAX or chars > VALUES_CHARS_MAX:
        raise _NoListError
    return [head + tail for head in heads for tail in tails]


def _members(text: str) -> list[str]:
    """The characters of a class such as `a-cx`."""
    found: list[str] = []
    at = 0
    while at < len(text):
        first, last = text[at], text[at]
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            last = text[at + 2]
            at += 2
        elif first == "-" and 0 < at < len(text) - 1:
            raise _NoListError
        at += 1
        if not (first <= last and ord(last) - ord(first) < RANGE_MAX):
            raise _NoListError
        found += map(chr, range(ord(first), ord(last) + 1))
    return found
