"""Pattern: the regular expression of a matcher, over label values.

RE2 syntax, anchored at both ends, `.` matches newline, as in Prometheus. The pattern text is used
before any automaton: a list of literals becomes a look-up, and a literal prefix leaves few values to test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import re2

from tsdb.model.errors import InvalidRequest

PATTERN_BYTES_MAX = 4096
PROGRAM_SIZE_MAX = 5_000  # RE2 instructions. Plain text needs about one per byte; repeats need more.
MEMORY_BYTES_MAX = 2 << 20  # Per compiled pattern, whose automaton is built during use; 128 patterns are cached.

_META = set(r".^$*+?()[]{}|\\")
_QUANTIFIERS = set("*+?{")
_ANY = {".*": 0, ".+": 1}  # Patterns that may follow a literal prefix, and the characters that each needs at least.
_GROUP = re.compile(r"\((?:\?:)?([^()]*)\)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """literals: all values that match, or None. Else values begin with `prefix`, and `matcher` decides.

    matcher None: any value that is at least rest_bytes_min longer than the prefix matches.
    """

    literals: tuple[bytes, ...] | None
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
    if size > PATTERN_BYTES_MAX:
        raise InvalidRequest(
            f"regular expression of {size} bytes; limit is {PATTERN_BYTES_MAX}", reason="regex_too_large"
        )
    literals = _literals(text)
    if literals is not None:
        return Pattern(literals, b"", 0, None)
    prefix, rest = _prefix(text)
    if rest in _ANY:
        return Pattern(None, prefix, _ANY[rest], None)
    return Pattern(None, prefix, 0, _compiled(text))


def _compiled(text: str) -> re2._Regexp:
    options = re2.Options()
    options.dot_nl, options.never_capture, options.log_errors = True, True, False
    options.max_mem = MEMORY_BYTES_MAX
    try:
        compiled = re2.compile(text.encode(), options)
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


def _literals(text: str) -> tuple[bytes, ...] | None:
    """The alternatives of `a|b|c` or `(a|b|c)`; None unless all have only plain and escaped characters."""
    group = _GROUP.match(text)
    parts: list[list[str]] = [[]]
    position, inside = 0, group.group(1) if group else text
    while position < len(inside):
        if inside[position] == "|":
            parts.append([])
            position += 1
            continue
        char, position = _plain(inside, position)
        if char is None:
            return None
        parts[-1].append(char)
    return tuple(dict.fromkeys("".join(part).encode() for part in parts))


def _prefix(text: str) -> tuple[bytes, str]:
    """(the literal that every match begins with, the pattern after it)."""
    chars: list[str] = []
    position = 0
    while "|" not in text and position < len(text):
        char, after = _plain(text, position)
        if char is None or text[after : after + 1] in _QUANTIFIERS:
            break
        chars.append(char)
        position = after
    return "".join(chars).encode(), text[position:]


def _plain(text: str, position: int) -> tuple[str | None, int]:
    """(the character that stands for itself at a position, position after it); None for anything else."""
    char = text[position]
    if char not in _META:
        return char, position + 1
    escaped = text[position + 1 : position + 2]
    # An escaped letter or digit is a class or a code; RE2 itself refuses those it does not know.
    if char == "\\" and escaped and escaped.isascii() and not escaped.isalnum() and escaped != "_":
        return escaped, position + 2
    return None, position


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "...")
