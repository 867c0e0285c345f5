"""Cross-origin requests: the headers by which a browser lets a page of another site read an answer."""

from __future__ import annotations

from collections.abc import Mapping

from tsdb.selector.pattern import compile_pattern

_HEADERS = (
    ("access-control-allow-headers", "Accept, Authorization, Content-Type, Origin"),
    ("access-control-allow-methods", "GET, POST, OPTIONS"),
    ("access-control-expose-headers", "Date"),
    ("vary", "Origin"),
)
_ALL = ".*"


class CrossOrigin:
    """allowed: a regular expression for origins, anchored. Raises InvalidRequest for a malformed one."""

    def __init__(self, allowed: str) -> None:
        self._all = allowed == _ALL
        self._pattern = compile_pattern(allowed)

    def allows(self, origin: str) -> bool:
        """Whether pages of an origin may read answers."""
        return self._all or self._pattern.matches(origin.encode(errors="replace"))

    def headers(self, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Headers of the answer to a request that has these headers."""
        origin = headers.get("origin", "")
        if not origin:
            return ()
        if self._all:
            return (*_HEADERS, ("access-control-allow-origin", "*"))
        if self.allows(origin):
            return (*_HEADERS, ("access-control-allow-origin", origin))
        return _HEADERS
