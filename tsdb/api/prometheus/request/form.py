"""Form: the parameters of a request, from its URL and its body, read as Go's net/http reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes

from tsdb.ops.http.bodies import HttpHead

FORM = "application/x-www-form-urlencoded"
_HEX = frozenset("0123456789abcdefABCDEF")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Form:
    """problem: of the first part that cannot be read, which is left out; empty without one."""

    def __init__(self, values: Mapping[str, Sequence[str]], problem: str = "") -> None:
        self._values = values
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
        return next(iter(self._values.get(name, ())), "")

    def all(self, name: str) -> Sequence[str]:
        """All values of a parameter."""
        return self._values.get(name, ())

    def flag(self, name: str) -> bool:
        """Whether a parameter of ours is set: 1 or true."""
        return self.get(name).lower() in ("1", "true")


def _read(text: str, values: dict[str, list[str]]) -> str:
    problem = ""
    for part in text.split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        found = "invalid semicolon separator in query" if ";" in part else _bad_escape(name) or _bad_escape(value)
        if found:
            problem = problem or found
        else:
            values.setdefault(_unescaped(name), []).append(_unescaped(value))
    return problem


def _bad_escape(text: str) -> str:
    at = text.find("%")
    while at >= 0:
        code = text[at : at + 3]
        if len(code) < 3 or not _HEX.issuperset(code[1:]):
            return f'invalid URL escape "{code}"'
        at = text.find("%", at + 3)
    return ""


def _unescaped(text: str) -> str:
    """Bytes that are no UTF-8 become surrogates."""
    return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode(errors="surrogateescape")
