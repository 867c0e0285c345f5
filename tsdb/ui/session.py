"""Sign-in: the token of a caller in a cookie, for browsers send no authorization by themselves.

The cookie has the token itself, so it is valid at each replica and ends when the token does. Scripts cannot read it,
and requests of other sites come without it (SameSite=Lax), except that a link may open a page.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from tsdb.ops.auth import bearer_token
from tsdb.ops.http.bodies import HttpHead

COOKIE = "tsdb_token"
SIGNED_IN_S = 7 * 86_400


def authorization(head: HttpHead) -> str | None:
    """The credentials of a request as `Bearer TOKEN`, from its header or otherwise from its cookie."""
    given = head.headers.get("authorization")
    if given is not None:
        return given
    try:
        found = SimpleCookie(head.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return f"Bearer {found.value}" if found is not None and found.value else None


def signed_in(head: HttpHead, *, is_secure: bool) -> tuple[str, str]:
    """The header that keeps the token of a request, which has been checked."""
    token = bearer_token(authorization(head)) or b""
    return _cookie(token.decode("latin-1"), SIGNED_IN_S, is_secure)


def signed_out(*, is_secure: bool) -> tuple[str, str]:
    """The header that removes the token."""
    return _cookie("", 0, is_secure)


def is_cross_site(head: HttpHead) -> bool:
    """Whether a page of another site made the request, as far as the browser states it."""
    return head.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def _cookie(token: str, age_s: int, is_secure: bool) -> tuple[str, str]:
    secure = "; Secure" if is_secure else ""
    return "set-cookie", f"{COOKIE}={token}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}"
