"""The connection to a server: address, TLS, token and the options of a gRPC channel. Opens nothing by itself."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from tsdb.model.errors import InvalidRequest

MESSAGE_BYTES_MAX = 64 << 20  # The servers' limit. gRPC's default of 4 MiB is too small for large answers.

# gRPC's default of 20 s is most of a call's time, and the address of a pod that no longer exists never answers.
CONNECT_S = 5.0

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Detects a frozen server during a call. Servers allow a ping every 5 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC's default waits up to two minutes between attempts, far longer than one of our servers needs to restart.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A server may come back with another address under its name. gRPC's default resolves a name anew after 30 s only.
    ("grpc.dns_min_time_between_resolutions_ms", 5_000),
    # retry.py retries instead: it knows the retryable errors and follows the server's hint.
    ("grpc.enable_retries", 0),
)

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # The syntax of a token in RFC 6750, section 2.1.


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS towards the server. Every part may be absent; certificate and key are given together.

    ca_file: PEM of the trusted authorities; without it those of the system. cert_file, key_file: client certificate,
    for servers that require one. Checked on construction: raises InvalidRequest (tls) for unusable files.
    """

    ca_file: Path | str | None = None
    cert_file: Path | str | None = None
    key_file: Path | str | None = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise InvalidRequest("TLS: a client certificate and its key go together", reason="tls")
        for path in (self.ca_file, self.cert_file, self.key_file):
            if path and not Path(path).is_file():
                raise InvalidRequest(f"TLS file {path} is not there, or is no file", reason="tls")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.ca_file is not None:
                context.load_verify_locations(self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file, password=_no_password)
        except (OSError, ValueError) as error:
            raise InvalidRequest(
                f"TLS files do not work: CA {self.ca_file or 'of the system'}, certificate "
                f"{self.cert_file or 'none'}, key {self.key_file or 'none'}: {error}",
                reason="tls",
            ) from error

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials from the current content of the files."""
        return grpc.ssl_channel_credentials(_read(self.ca_file), _read(self.key_file), _read(self.cert_file))


def check_address(address: str) -> str:
    """HOST:PORT (an IPv6 host in brackets), as given. Raises InvalidRequest (bad_address)."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise InvalidRequest(f"address {address!r} is not HOST:PORT", reason="bad_address")
    return address


def call_metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata of each call. An error never contains the token. Raises InvalidRequest (token_malformed)."""
    if token is None:
        return ()
    if not _TOKEN.fullmatch(token):
        raise InvalidRequest("characters of the token are outside A-Z a-z 0-9 . _ ~ + / - =", reason="token_malformed")
    return (("authorization", f"Bearer {token}"),)


def open_channel(
    address: str, tls: ClientTls | None, *, server_name: str | None = None, connect_s: float = CONNECT_S
) -> grpc.Channel:
    """A channel, which connects at its first call. server_name: name in the certificate, if not that of the address.

    connect_s: time for one attempt to connect; calls wait for it.
    """
    options = (*CHANNEL_OPTIONS, _connect_within(connect_s))
    if tls is None:
        return grpc.insecure_channel(check_address(address), options)
    named = (("grpc.ssl_target_name_override", server_name),) if server_name else ()
    return grpc.secure_channel(check_address(address), tls.credentials(), (*options, *named))


def open_aio_channel(address: str, tls: ClientTls | None) -> grpc.aio.Channel:
    """Does what `open_channel` does, for asyncio. Call it on the loop that will use the channel."""
    options = (*CHANNEL_OPTIONS, _connect_within(CONNECT_S))
    if tls is None:
        return grpc.aio.insecure_channel(check_address(address), options)
    return grpc.aio.secure_channel(check_address(address), tls.credentials(), options)


def _connect_within(seconds: float) -> tuple[str, int]:
    """The option that bounds an attempt: gRPC gives it the time until the next one."""
    return ("grpc.min_reconnect_backoff_ms", round(seconds * 1000))


def _read(path: Path | str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _no_password() -> str:
    # Otherwise OpenSSL would wait for a passphrase on the terminal.
    raise ValueError("the key is encrypted; give one without a passphrase")
