"""Options of every command that calls a server, passed to it as one Connection.

`@connected()` puts these options into a command's signature in place of its parameter `connection`, so that a command
declares only its other options.

Commands that read have options for the lag and the losses that they accept.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tsdb.answer.spec import ReadOptions
from tsdb.cli.options.arguments import Milliseconds, duration, duration_text
from tsdb.cli.terminal.output import note
from tsdb.client import Client, ClientTls, InvalidRequest, TsdbError, connect
from tsdb.client.channel import check_address

DEFAULT_ADDRESS = "127.0.0.1:7410"  # The default of the servers' setting `grpc`.
READ_TIMEOUT = "10s"  # Short, since a person waits for the answer.
WRITE_TIMEOUT = "60s"  # Longer than a broker fail-over.
QUIET_S = 0.3  # A restart may take this long without a remark. A server that stays away is named within a second.
TIMEOUT_MAX_MS = 30 * 24 * 3_600_000  # gRPC has an upper bound for deadlines.

AllowStale = Annotated[bool, typer.Option("--allow-stale", help="Answer although a partition lags.")]
MaxLag = Annotated[
    Milliseconds | None,
    typer.Option(
        "--max-lag",
        parser=duration,
        metavar="DURATION",
        help="Refuse where a larger lag touches the answer, as in 1s; by default it is a warning.",
    ),
]


def address(text: str) -> str:
    """The given HOST:PORT, after a check."""
    try:
        return check_address(text)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None


def _timeout(text: str) -> Milliseconds:
    found = duration(text)
    if found.ms > TIMEOUT_MAX_MS:
        raise typer.BadParameter(f"{text!r} is above {duration_text(TIMEOUT_MAX_MS)}")
    return found


@dataclass(frozen=True, slots=True)
class Connection:
    """Address, TLS, token and timeout of a call. Each field is an option; help lists them in this order."""

    address: Annotated[
        str,
        typer.Option("--address", parser=address, metavar="HOST:PORT", envvar="TSDB_ADDRESS", help="Server to call."),
    ] = DEFAULT_ADDRESS
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS with the system's authorities.")] = False
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", envvar="TSDB_TLS_CA", help="Use TLS; PEM of the trusted authorities.")
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", envvar="TSDB_TLS_CERT", help="PEM of the client certificate.")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", envvar="TSDB_TLS_KEY", help="PEM of its key, without a passphrase.")
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            envvar="TSDB_TOKEN_FILE",
            help="File with the bearer token; without it TSDB_TOKEN. No option takes the token: others could read it.",
        ),
    ] = None
    timeout: Annotated[
        Milliseconds,
        typer.Option("--timeout", parser=_timeout, metavar="DURATION", help="Longest wait, retries included."),
    ] = field(default=Milliseconds(10_000))

    def open(self) -> Client:
        """A client, which connects at its first call. Raises InvalidRequest for an unusable file or token."""
        return connect(
            self.address,
            tls=self._client_tls(),
            token=bearer_token(self.token_file),
            timeout_s=self.timeout.ms / 1000,
            on_retry=UnreachableNotice(self.timeout),
        )

    def _client_tls(self) -> ClientTls | None:
        if not (self.tls or self.tls_ca or self.tls_cert or self.tls_key):
            return None
        return ClientTls(self.tls_ca, self.tls_cert, self.tls_key)


class UnreachableNotice:
    """Prints once on stderr that a server is unreachable, while its client tries again. Without it the terminal is
    silent for the whole timeout."""

    def __init__(self, timeout: Milliseconds, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._timeout = timeout
        self._monotonic = monotonic
        self._failed_at: float | None = None
        self._printed = False

    def __call__(self, error: TsdbError) -> None:
        """Takes the error of an attempt that will be repeated."""
        if self._printed or error.reason != "unreachable":
            return
        if self._failed_at is None:
            self._failed_at = self._monotonic()
        if self._monotonic() - self._failed_at < QUIET_S:
            return
        self._printed = True
        note(f"{error.message}; tried again for up to {duration_text(self._timeout.ms)}")


def bearer_token(file: Path | None) -> str | None:
    """The token of a file, or of TSDB_TOKEN. Raises InvalidRequest (token_file)."""
    text = _token_text(file) if file else os.environ.get("TSDB_TOKEN", "")
    # The file may be a server's list of valid tokens. Comments are skipped and the first token is sent.
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    tokens = " ".join(lines).replace(",", " ").split()
    return tokens[0] if tokens else None


def _token_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InvalidRequest(f"token file {path} cannot be read: {why}", reason="token_file") from None


def connected(timeout: str = READ_TIMEOUT) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command whose first parameter is `connection`: replaces it by the options of Connection."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            connection = Connection(**{name: given.pop(name) for name in _FIELDS})
            command(connection, **given)

        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        options = [_parameter(name, hint, timeout) for name, hint in _FIELDS.items()]
        # Typer reads the signature. The annotations would still contain `connection`.
        wrapper.__signature__ = inspect.Signature([*map(_keyword, own), *options])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {}
        return wrapper

    return decorate


_FIELDS: dict[str, Any] = get_type_hints(Connection, include_extras=True)


CONNECTION_OPTIONS = frozenset(_FIELDS)


_DEFAULTS = {option.name: option.default for option in fields(Connection) if option.default is not MISSING}


def _parameter(name: str, hint: Any, timeout: str) -> inspect.Parameter:
    # Typer parses a default like typed text, so this default is text.
    default = timeout if name == "timeout" else _DEFAULTS.get(name, inspect.Parameter.empty)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def read_options(allow_stale: bool, max_lag: Milliseconds | None, *, allow_holes: bool = False) -> ReadOptions:
    """The options of a read. Raises BadParameter for options that exclude each other."""
    if allow_stale and max_lag is not None:
        raise typer.BadParameter("give --allow-stale or --max-lag, not both")
    return ReadOptions(allow_stale=allow_stale, allow_holes=allow_holes, max_lag_ms=max_lag.ms if max_lag else None)
