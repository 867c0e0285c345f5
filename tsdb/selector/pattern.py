"""Pattern: compiles the regular expression of a matcher, over label values.

RE2 syntax, anchored at both ends, `.` matches newline, as in Prometheus. The pattern text is used
before any automaton: a list of literals becomes a look-up, and a literal prefix leaves few values to test. Groups and
classes of a list such as `(a|b)\\.local` or `^node[1-3]$` are multiplied out; a pattern with another construct, or with
too many values, goes to RE2, with the same result.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsdb.model.errors import InvalidRequest

if TYPE_CHECKING:
    import re2

PATTERN_BYTES_MAX = 1 << 20  # Bytes of a list of literals.
REGEX_BYTES_MAX = 128 << 10  # RE2 parses any other pattern with some 100 bytes for each byte.
# RE2 instructions, some 100 bytes each. Plain text needs one for each byte, `.` eight. So a list of 4,000 addresses
# with dots fits, or a repetition of a thousand characters.
PROGRAM_SIZE_MAX = 100_000
MEMORY_BYTES_MAX = 2 << 20  # Memory of a compiled pattern, whose automaton is built during use.
CACHED_MAX = 128
CACHED_SIZE_MAX = 4 * PROGRAM_SIZE_MAX  # Program size of all cached programs together.

# Values of groups and classes that are multiplied out. A plain list has one value for each of its texts.
VALUES_MAX = 100_000
VALUES_CHARS_MAX = 4 << 20
CLASS_RANGE_MAX = 1_000  # A longer text could contain surrogates.
GROUPS_NESTED_MAX = 20

_META = frozenset(r".^$*+?()[]{}|\\")
_ANY_META = re.compile(r"[.^$*+?()\[\]{}\\]")
_RUN = re.compile(r"[^.^$*+?()\[\]{}|\\]+")
_GROUP = re.compile(r"\((?:\?:|\?P?<[a-zA-Z_]\w*>)?(?!\?)", re.ASCII)
_CLASS = re.compile(r"\[([^\^\[\]\\][^\[\]\\]*)\]")
_QUANTIFIERS = set("*+?{")
_ANY = {".*": 0, ".+": 1}  # Patterns that may follow a literal prefix, and the characters that each needs at least.


@dataclass(frozen=True, slots=True)
class Pattern:
    """literals: all values that match, or None. With None, values begin with `prefix`, and `matcher` decides.

    matcher None: any value matches that is at least rest_bytes_min longer than the prefix.
    """

    literals: frozenset[bytes] | None
    prefix: bytes
    rest_bytes_min: int
    matcher: re2._Regexp | None

    def matches(self, value: bytes) -> bool:
        """Whether the whole value matches."""
        if self.literals is not None:
            return value in self.literals
        if self.matcher is None:
            return value.startswith(self.prefix) and len(value) >= len(self.prefix) + self.rest_bytes_min
        return self.matcher.fullmatch(value) is not None


def compile_pattern(text: str) -> Pattern:
    """Raises InvalidRequest (regex_too_large, regex_malformed)."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"regular expression {_shown(text)} is not UTF-8", reason="regex_malformed") from None
    _check_size(size, PATTERN_BYTES_MAX, "")
    literals = literals_of(text)
    if literals is not None:
        return Pattern(literals, b"", 0, None)
    prefix, rest = _prefix(text)
    if rest in _ANY:
        return Pattern(None, prefix, _ANY[rest], None)
    _check_size(size, REGEX_BYTES_MAX, " for one that is more than a list of values")
    return Pattern(None, prefix, 0, _programs.get(text))


def _check_size(size: int, limit: int, of_what: str) -> None:
    if size > limit:
        raise InvalidRequest(
            f"regular expression of {size} bytes; limit is {limit}{of_what}, use several selectors joined by `or`",
            reason="regex_too_large",
        )


class _Programs:
    """LRU cache of compiled patterns, bounded by their number and by their instructions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards both below.
        self._known: OrderedDict[str, re2._Regexp] = OrderedDict()
        self._size = 0

    def get(self, text: str) -> re2._Regexp:
        with self._lock:
            known = self._known.get(text)
            if known is not None:
                self._known.move_to_end(text)
                return known
        made = _compiled(text)
        with self._lock:
            if text not in self._known:
                self._known[text] = made
                self._size += made.programsize
            while len(self._known) > CACHED_MAX or self._size > CACHED_SIZE_MAX:
                _, oldest = self._known.popitem(last=False)
                self._size -= oldest.programsize
        return made


_programs = _Programs()


def _compiled(text: str) -> re2._Regexp:
    # RE2 takes 6 ms to import, which a command without regular expressions saves.
    import re2

    options = re2.Options()
    options.dot_nl, options.never_capture, options.log_errors = True, True, False
    options.max_mem = MEMORY_BYTES_MAX
    try:
        # `re2.compile` keeps 128 patterns of any size.
        compiled = re2._Regexp(text.encode(), options)
    except re2.error as error:
        why = str(error.args[0], "utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        # RE2 limits the size of expanded repeats; it gives the same message for a{2,1}.
        too_large = "too large" in why or "repetition size" in why
        raise InvalidRequest(
            f"regular expression {_shown(text)}: {why}", reason="regex_too_large" if too_large else "regex_malformed"
        ) from None
    if compiled.programsize > PROGRAM_SIZE_MAX:
        raise InvalidRequest(
            f"regular expression {_shown(text)} needs {compiled.programsize} instructions; limit is {PROGRAM_SIZE_MAX}",
            reason="regex_too_large",
        )
    return compiled


def _prefix(text: str) -> tuple[bytes, str]:
    """(the literal that every match begins with, the pattern after it)."""
    chars: list[str] = []
    position = 0
    while "|" not in text and position < len(text):
        char, after = _plain_at(text, position)
        if char is None or text[after : after + 1] in _QUANTIFIERS:
            break
        chars.append(char)
        position = after
    return "".join(chars).encode(), text[position:]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "...")


def literals_of(text: str) -> frozenset[bytes] | None:
    """All values that match the whole pattern; None for a pattern that is not a list of literals."""
    if _ANY_META.search(text) is None:
        return frozenset(text.encode().split(b"|"))
    parser = _ListParser(text)
    try:
        found = parser.alternatives(0)
    except _NoListError:
        return None
    # Python's classes and groups are those of RE2, but a closing bracket too many is an error.
    return frozenset(one.encode() for one in found) if parser.at == len(text) else None


def _plain_at(text: str, position: int) -> tuple[str | None, int]:
    """Returns (the character that stands for itself at a position, position after it); None for anything else."""
    char = text[position]
    if char not in _META:
        return char, position + 1
    escaped = text[position + 1 : position + 2]
    # An escaped letter or digit is a class or a code; RE2 itself refuses those it does not know.
    if char == "\\" and escaped and escaped.isascii() and not escaped.isalnum() and escaped != "_":
        return escaped, position + 2
    return None, position


class _NoListError(Exception):
    """The pattern is no list of literals, or one of too many."""


class _ListParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def alternatives(self, depth: int) -> list[str]:
        """The values up to a closing parenthesis or the end."""
        if depth > GROUPS_NESTED_MAX:
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
        plain: list[str] = []  # The text that follows all of `found`, in pieces.
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
            char, self.at = _plain_at(text, start)
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
        if not (first <= last and ord(last) - ord(first) < CLASS_RANGE_MAX):
            raise _NoListError
        found += map(chr, range(ord(first), ord(last) + 1))
    return found
