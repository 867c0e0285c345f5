"""Bearer tokens: the valid ones, and the check of a request's authorization. Independent of gRPC and HTTP.

Several tokens may be valid at once, so that tokens can be rotated without a gap. A token file is read again when it
changes. The comparison takes the same time for every token, valid or not.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, Unauthenticated
from tsdb.ops.metrics import counter
from tsdb.ops.watched_file import WatchedFile

_REASONS = ("token_missing", "token_malformed", "token_wrong")
_failures = counter(
    "tsdb_auth_failures_total",
    "Requests refused because they had no valid bearer token.",
    ("server", "reason"),
    [(server, reason) for server in ("grpc", "http") for reason in _REASONS],
)

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


class Tokens:
    """The valid tokens. Thread-safe.

    `text`: tokens separated by white space or commas. `file`: one a line, lines with # are comments.
    Raises ConfigMismatch (token) for an unreadable file, an illegal token, or none at all.
    """

    def __init__(self, *, text: str = "", file: Path | None = None) -> None:
        self._fixed = _digests(re.split(r"[\s,]+", text.strip()) if text.strip() else [], "the token setting")
        self._from_file = None if file is None else WatchedFile(file, _read, SystemClock())
        if not self._fixed and self._from_file is None:
            raise ConfigMismatch(f"no token in {file or 'the token setting'}: every call would fail", reason="token")

    def check(self, authorization: str | bytes | None, *, server: str) -> None:
        """Raises Unauthenticated (token_missing, token_malformed, token_wrong); `server`: "grpc" or "http"."""
        if not authorization:
            _refuse(server, "token_missing", "a bearer token is required: send authorization: Bearer TOKEN")
        token = bearer_token(authorization)
        if token is None:
            _refuse(server, "token_malformed", "the authorization is not of the form: Bearer TOKEN")
        if not self._known(token):
            _refuse(server, "token_wrong", "the bearer token is not valid here")

    def _known(self, token: bytes) -> bool:
        shown = token_digest(token)
        # No early exit: the time taken must not reveal the number of tokens or a near match.
        return sum(hmac.compare_digest(shown, valid) for valid in (*self._fixed, *self._current())) > 0

    def _current(self) -> frozenset[bytes]:
        return frozenset() if self._from_file is None else self._from_file.now()


def bearer_token(authorization: str | bytes | None) -> bytes | None:
    """The token of an authorization header; None when it has none, or another form."""
    if not authorization:
        return None
    header = authorization.encode("utf-8", "replace") if isinstance(authorization, str) else authorization
    scheme, _, token = header.partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def token_digest(token: bytes) -> bytes:
    """SHA-256, by which a token is known where it need not be kept."""
    return hashlib.sha256(token).digest()


def _read(file: Path) -> frozenset[bytes]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigMismatch(f"token file {file} cannot be read: {error}", reason="token") from error
    tokens = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not tokens:
        raise ConfigMismatch(f"token file {file} holds no token", reason="token")
    return _digests(tokens, f"token file {file}")


def _digests(tokens: Iterable[str], place: str) -> frozenset[bytes]:
    found = set()
    for number, token in enumerate(tokens, 1):
        if not _TOKEN.fullmatch(token):
            raise ConfigMismatch(
                f"token {number} in {place} has characters outside A-Z a-z 0-9 . _ ~ + / - =", reason="token"
            )
        found.add(token_digest(token.encode()))
    return frozenset(found)


def _refuse(server: str, reason: str, message: str) -> NoReturn:
    _failures.labels(server, reason).inc()
    raise Unauthenticated(message, reason=reason)
