"""Pattern: the regular expression of a matcher, over label values.

RE2 syntax, anchored at both ends, `.` matches newline, as in Prometheus. The pattern text is used
before any automaton: a list of literals becomes a look-up, and a literal prefix leaves few values to test.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import re2

from tsdb.index.literal_list import literals_of, plain_at
from tsdb.model.errors import InvalidRequest

PATTERN_BYTES_MAX = 1 << 20  # Of a list of literals.
REGEX_BYTES_MAX = 128 << 10  # Of any other pattern; RE2 parses it with some 100 bytes for each of it.
# RE2 instructions, some 100 bytes each. Plain text needs one a byte, `.` eight: a list of 4,000 addresses with points,
# or a repetition of a thousand characters.
PROGRAM_SIZE_MAX = 100_000
MEMORY_BYTES_MAX = 2 << 20  # Per compiled pattern, whose automaton is built during use.
CACHED_MAX = 128
CACHED_SIZE_MAX = 4 * PROGRAM_SIZE_MAX  # Of all cached programs.

_QUANTIFIERS = set("*+?{")
_ANY = {".*": 0, ".+": 1}  # Patterns that may follow a literal prefix, and the characters that each needs at least.


@dataclass(frozen=True, slots=True)
class Pattern:
    """literals: all values that match, or None. Else values begin with `prefix`, and `matcher` decides.

    matcher None: any value that is at least rest_bytes_min longer than the prefix matches.
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
        char, after = plain_at(text, position)
        if char is None or text[after : after + 1] in _QUANTIFIERS:
            break
        chars.append(char)
        position = after
    return "".join(chars).encode(), text[position:]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "...")
