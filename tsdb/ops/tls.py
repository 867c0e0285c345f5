"""TLS of our servers, from PEM files. Renewed files are read again without a restart."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast

import grpc

from tsdb.model.errors import ConfigMismatch
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

Credentials = TypeVar("Credentials")

log = get_logger(__name__)

_reloads = counter(
    "tsdb_tls_reloads_total", "Certificates read again after their files changed.", "result", ("ok", "failed")
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A server's certificate and key; with `client_ca_file`, gRPC callers must show a certificate signed by it.

    Checked on construction: raises ConfigMismatch (tls) when a file cannot be read or the pair does not match.
    """

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.cert_file, self.key_file, password=_no_password)
            if self.client_ca_file:
                context.load_verify_locations(self.client_ca_file)
        except (OSError, ValueError) as error:
            raise ConfigMismatch(
                f"TLS files do not work: certificate {self.cert_file}, key {self.key_file}, "
                f"client CA {self.client_ca_file or 'none'}: {error}",
                reason="tls",
            ) from error

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files: each handshake checks them for changes."""
        source = _Files(self, self._grpc_configuration)
        # None keeps the current credentials. The stubs do not allow it.
        reload = cast(Callable[[], grpc.ServerCertificateConfiguration], source.reload)
        return grpc.dynamic_ssl_server_credentials(
            source.load(), reload, require_client_authentication=self.client_ca_file is not None
        )

    def http_contexts(self) -> Callable[[], ssl.SSLContext]:
        """A function that gives the context of a new connection, from the files as they are then. Clients need no
        certificate: probes have none."""
        source = _Files(self, self._http_context)
        current = [source.load()]

        def context() -> ssl.SSLContext:
            current[0] = source.reload() or current[0]
            return current[0]

        return context

    def _grpc_configuration(self) -> grpc.ServerCertificateConfiguration:
        pair = (self.key_file.read_bytes(), self.cert_file.read_bytes())
        ca = self.client_ca_file.read_bytes() if self.client_ca_file else None
        return grpc.ssl_server_certificate_configuration([pair], ca)

    def _http_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file, password=_no_password)
        return context


class _Files(Generic[Credentials]):
    """Remembers the version of the files in use. gRPC calls `reload` on its own threads, once for each handshake."""

    def __init__(self, tls: ServerTls, load: Callable[[], Credentials]) -> None:
        self.load = load
        self._tls = tls
        self._seen = self._stamp()

    def reload(self) -> Credentials | None:
        """New credentials when the files have changed and are valid; else None: the current ones stay."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return None
            self._seen = stamp
            ServerTls(self._tls.cert_file, self._tls.key_file, self._tls.client_ca_file)
            loaded = self.load()
        except (OSError, ConfigMismatch) as error:
            # A renewal writes two files one after the other; after the second the pair matches.
            _reloads.labels("failed").inc()
            log.warning("tls files not reloaded", error=str(error))
            return None
        _reloads.labels("ok").inc()
        log.info("tls files reloaded", cert_file=str(self._tls.cert_file))
        return loaded

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        files = (self._tls.cert_file, self._tls.key_file, self._tls.client_ca_file)
        stats = [path.stat() for path in files if path]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def _no_password() -> str:
    # Otherwise OpenSSL would wait for a passphrase on the terminal and the service would hang.
    raise ValueError("the key is encrypted; give one without a passphrase")
