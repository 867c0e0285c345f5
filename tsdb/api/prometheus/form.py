"""Form: the parameters of a request, from its URL and its body, read as Go's net/http reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from tsdb.ops.http.bodies import HttpHead

FORM = "application/x-www-form-urlencoded"
KEPT_CHARS_MAX = 1024  # Characters of a remembered parameter. With 4,096 of them the memory is some 20 MB at worst.
_SPECIAL = re.compile("[%+;]")
_HEX = frozenset("0123456789abcdefABCDEF")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Form:
    """problem: the problem of the first part that cannot be read, which is left out; empty without one. first: the
    first value of each parameter.
    """

    def __init__(self, values: Mapping[str, Sequence[str]], problem: str = "") -> None:
        self._values = values
        self.first = {name: texts[0] for name, texts in values.items() if texts}
        self.problem = problem

    @classmethod
    def of(cls, head: HttpHead, body: bytes | bytearray) -> Form:
        """Parameters of the body come before those of the URL. A body of another content type is not read."""
        values: dict[str, list[str]] = {}
        problem = ""
        content_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        if head.method in _WITH_BODY and content_type == FORM:
            problem = _read(body.decode("latin-1"), values)
        problem_of_url = _read(head.query, values)
        return cls(values, problem or problem_of_url)

    def get(self, name: str) -> str:
        """The first value of a parameter, "" without one."""
        return self.first.get(name, "")

    def all(self, name: str) -> Sequence[str]:
        """All values of a parameter."""
        return self._values.get(name, ())

    def flag(self, name: str) -> bool:
        """Whether a parameter of ours is set: 1 or true."""
        text = self.first.get(name)
        return text is not None and text.lower() in ("1", "true")


def _read(text: str, values: dict[str, list[str]]) -> str:
    problem = ""
    for part in text.split("&"):
        if not part:
            continue
        if part.isascii() and not _SPECIAL.search(part):
            found, (name, _, value) = "", part.partition("=")
        else:
            found, name, value = (_pair if len(part) <= KEPT_CHARS_MAX else _pair.__wrapped__)(part)
        if found:
            problem = problem or found
        else:
            values.setdefault(name, []).append(value)
    return problem


@lru_cache(maxsize=4096)
def _pair(part: str) -> tuple[str, str, str]:
    """(problem, name, value) of one parameter. Dashboards send the same texts again and again, with most of their
    characters escaped."""
    name, _, value = part.partition("=")
    if ";" in part:
        return "invalid semicolon separator in query", "", ""
    if problem := _bad_escape(name) or _bad_escape(value):
        return problem, "", ""
    return "", _unescaped(name), _unescaped(value)


def _bad_escape(text: str) -> str:
    at = text.find("%")
    while at >= 0:
        code = text[at : at + 3]
        if len(code) < 3 or not _HEX.issuperset(code[1:]):
            return f'invalid URL escape "{code}"'
        at = text.find("%", at + 3)
    return ""


def _unescaped(text: str) -> str:
    """Bytes that are not UTF-8 become surrogates."""
    return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode(errors="surrogateescape")
