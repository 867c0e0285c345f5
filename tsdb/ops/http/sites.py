"""Sites: which web pages may send requests to a server without tokens.

A browser sends requests of any page to any address, this machine's own included, and a page may write with a form. Two
headers give the page away: Origin (or Sec-Fetch-Site, or Referer), and Host, which names the page's own site when that
site's DNS name was pointed at this machine (DNS rebinding). Programs send no Origin and are not affected. A server with
tokens needs none of this: a page cannot send a token that it does not know.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from tsdb.model.errors import InvalidRequest
from tsdb.ops.metrics import counter

OTHER_ORIGIN = "other_origin"
OTHER_HOST = "other_host"
FORBIDDEN = frozenset({OTHER_ORIGIN, OTHER_HOST})
"""Reasons that are answered with 403."""

_OWN = frozenset({"same-origin", "none"})  # Sec-Fetch-Site of our pages, and of typed addresses.
_READS = frozenset({"GET", "HEAD"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
HOSTS_KEPT = 64  # Parsing one costs 5 us.
_SHOWN = 100  # Most characters of a header that a message shows.

_refused = counter(
    "tsdb_http_sites_refused_total",
    "Requests refused because a web page of another origin, or under another host name, made them.",
    "reason",
    (OTHER_ORIGIN, OTHER_HOST),
)


class Sites:
    """hosts: names of this server in URLs, beside addresses and local names. all_hosts: whether all names are
    allowed."""

    def __init__(self, hosts: Collection[str] = (), *, all_hosts: bool = False) -> None:
        self._hosts = frozenset(host.lower() for host in (*hosts, socket.gethostname()))
        self._all_hosts = all_hosts
        self._is_known = lru_cache(HOSTS_KEPT)(self._is_own)

    @classmethod
    def of(cls, listen_host: str, hosts: Collection[str] = ()) -> Sites:
        """The sites of a server at an address. A server that other machines reach cannot know its names without
        `hosts`."""
        return cls(hosts, all_hosts=not hosts and not _is_local(listen_host))

    def check(
        self, method: str, headers: Mapping[str, str], allows_origin: Callable[[str], bool] = lambda _origin: False
    ) -> None:
        """Raises InvalidRequest (other_host, other_origin). allows_origin: whether pages of an origin may read here."""
        host = headers.get("host", "")
        if not (self._all_hosts or self._is_known(host)):
            _refuse(
                OTHER_HOST,
                f"Host is {_shown(host)}, which is no name of this server: use its address or localhost, or add the "
                "name to http_hosts",
            )
        page, origin = _other_page(method, headers), headers.get("origin")
        if page is not None and not (origin and allows_origin(origin)):
            _refuse(
                OTHER_ORIGIN,
                f"a web page of another origin ({_shown(page)}) made this request: cors_origin names origins that may "
                "query; pages never write",
            )

    def _is_own(self, host: str) -> bool:
        name = _name_of(host)
        # No public DNS has a name without a dot, so no page of another site has it.
        return "." not in name.rstrip(".") or name in self._hosts or _is_local(name) or _is_address(name)


def _other_page(method: str, headers: Mapping[str, str]) -> str | None:
    """The page of another origin that made a request; None for a program and for our own pages."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    # The browser compares the page with the address that it sees, so this is right behind a proxy too.
    if site is not None:
        is_link = method in _READS and headers.get("sec-fetch-mode") == "navigate"
        return None if site in _OWN or is_link else origin or site
    if origin is None and method not in _READS:
        origin = headers.get("referer")
    if origin is None:
        return None
    own = {_place(f"//{headers[name]}", origin) for name in ("host", "x-forwarded-host") if headers.get(name)}
    return None if _place(origin, origin) in own else origin


def _place(url: str, origin: str) -> tuple[str, int | None]:
    """Host and port of a URL. Without a port it is the default of the origin's scheme."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(urlsplit(origin).scheme)
        return (parts.hostname or url).lower(), port
    except ValueError:
        return url, None


def _name_of(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return host.lower()


def _is_local(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    return _is_address(name) and ipaddress.ip_address(name).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text[:_SHOWN])


def _refuse(reason: str, message: str) -> None:
    _refused.labels(reason).inc()
    raise InvalidRequest(message, reason=reason)
