"""Bearer tokens: keeps the valid ones and checks the authorization of a request. Independent of gRPC and HTTP.

Several tokens may be valid at once, so that tokens can be rotated without a gap. A token file is read again when it
changes. A token is valid only while the file has it. A file that is empty, missing or unreadable has none; in a file
with a malformed line the other lines count. The comparison takes the same time for every token, valid or not.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, Unauthenticated
from tsdb.ops.logs import HELD_BACK, get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.watched_file import WatchedFile

_REASONS = ("token_missing", "token_malformed", "token_wrong")
LOG_EVERY_S = 60.0
LOG_LINES_MAX = 20  # Log lines in that time, for all callers together.
_failures = counter(
    "tsdb_auth_failures_total",
    "Requests refused because they had no valid bearer token.",
    ("server", "reason"),
    [(server, reason) for server in ("grpc", "http") for reason in _REASONS],
)

_file_failures = counter(
    "tsdb_auth_token_file_failures_total",
    "Changes of the token file after which it was empty, gone, unreadable, or had a malformed line.",
)
_file_valid = gauge(
    "tsdb_auth_token_file_valid",
    "1, or 0 while the token file is empty, gone or unreadable, or has a malformed line: only its other lines count.",
)
_file_valid.set(1)

log = get_logger(__name__)

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # The syntax of a token in RFC 6750, section 2.1.


class Tokens:
    """The valid tokens. Thread-safe.

    `text`: tokens separated by white space or commas. `file`: one a line, lines with # are comments.
    Raises ConfigMismatch (token) for an unreadable file, an illegal token, or none at all.
    """

    def __init__(self, *, text: str = "", file: Path | None = None) -> None:
        self._fixed = _digests(re.split(r"[\s,]+", text.strip()) if text.strip() else [], "the token setting")
        self._from_file = None
        if file is not None:
            self._from_file = WatchedFile(
                file, _read, SystemClock(), on_failure=_file_failures.inc, fallback=_valid_lines
            )
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

    def problem(self) -> str:
        """Why no token is valid, so that every call fails; "" while one is."""
        return "" if self._from_file is None or self._fixed or self._current() else self._from_file.problem

    def _known(self, token: bytes) -> bool:
        shown = token_digest(token)
        # There is no early exit, because the duration must not reveal the number of tokens or a near match.
        return sum(hmac.compare_digest(shown, valid) for valid in (*self._fixed, *self._current())) > 0

    def _current(self) -> frozenset[bytes]:
        if self._from_file is None:
            return frozenset()
        found = self._from_file.now()
        _file_valid.set(not self._from_file.problem)
        return found


def bearer_token(authorization: str | bytes | None) -> bytes | None:
    """The token of an authorization header; None when it has none, or another form."""
    if not authorization:
        return None
    header = authorization.encode("utf-8", "replace") if isinstance(authorization, str) else authorization
    scheme, _, token = header.partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def token_digest(token: bytes) -> bytes:
    """SHA-256 of a token, which identifies it where the token itself need not be stored."""
    return hashlib.sha256(token).digest()


class FailureLog:
    """Logs refused callers: one line a minute for each, and LOG_LINES_MAX for all together. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._since = -LOG_EVERY_S
        self._written: set[tuple[str, str, str]] = set()
        self._held_back = 0

    def add(self, error: Unauthenticated, server: str, peer: str) -> None:
        """Log a refused call. peer: HOST:PORT, or the name that gRPC gives."""
        caller = peer.rpartition(":")[0] or peer
        with self._lock:
            now = self._monotonic()
            if now - self._since >= LOG_EVERY_S:
                self._since = now
                self._written.clear()
            one = (caller, server, error.reason)
            if one in self._written or len(self._written) >= LOG_LINES_MAX:
                self._held_back += 1
                return
            self._written.add(one)
            held_back, self._held_back = self._held_back, 0
        fields = {HELD_BACK: held_back} if held_back else {}
        log.warning("authentication failed", caller=caller, server=server, reason=error.reason, **fields)


_failure_log = FailureLog()
log_failure = _failure_log.add


def _read(file: Path) -> frozenset[bytes]:
    tokens = _lines(file)
    if not tokens:
        raise ConfigMismatch(f"token file {file} holds no token", reason="token")
    return _digests(tokens, f"token file {file}")


def _valid_lines(file: Path) -> frozenset[bytes]:
    """The tokens of an invalid file. A revoked token must not stay valid because of another line."""
    try:
        lines = _lines(file)
    except ConfigMismatch:
        return frozenset()
    return frozenset(token_digest(line.encode()) for line in lines if _TOKEN.fullmatch(line))


def _lines(file: Path) -> list[str]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigMismatch(f"token file {file} cannot be read: {error}", reason="token") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


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
