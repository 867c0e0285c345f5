"""A standalone process behind TLS and a token, and requests to its Prometheus API."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from support.servers.certificates import Authority
from support.servers.processes import Role, tsdb_ok

TOKEN = "reader-and-writer"
STARTS_WITHIN = "240s"


@dataclass(frozen=True)
class SecuredServer:
    """folder: has the CA and the token, in files of these names."""

    role: Role
    folder: Path

    CA_FILE = "tsdb-ca.pem"
    TOKEN_FILE = "tsdb.token"

    @property
    def url(self) -> str:
        return f"https://{self.role.http}"

    @property
    def client_flags(self) -> Sequence[str]:
        """Of commands that call the process."""
        files = ("--tls-ca", str(self.folder / self.CA_FILE), "--token-file", str(self.folder / self.TOKEN_FILE))
        return ("--address", self.role.grpc, *files)

    def ask(self, path: str, **parameters: Any) -> Any:
        """The data of an answer. path: path below /api/v1/."""
        url = f"{self.url}/api/v1/{path}?{urlencode(parameters, doseq=True)}"
        request = Request(url, headers={"authorization": f"Bearer {TOKEN}"})
        trust = ssl.create_default_context(cafile=str(self.folder / self.CA_FILE))
        with urlopen(request, timeout=60, context=trust) as answer:
            read = json.loads(answer.read())
        assert read["status"] == "success", read
        return read["data"]


@contextmanager
def secured_standalone(scratch: Path) -> Iterator[SecuredServer]:
    """A process that is ready."""
    authority = Authority.in_folder(scratch)
    cert_file, key_file = authority.issue("server")
    token_file = scratch / SecuredServer.TOKEN_FILE
    token_file.write_text(f"{TOKEN}\n")
    authority.ca.cert_pem.write_to_path(str(scratch / SecuredServer.CA_FILE))
    secrets = ("--tls-cert-file", str(cert_file), "--tls-key-file", str(key_file), "--token-file", str(token_file))
    role = Role(scratch, "standalone", "--data-dir", str(scratch / "data"), *secrets)
    server = SecuredServer(role, scratch)
    try:
        role.start(ready=False)
        tsdb_ok("coverage", *server.client_flags, "--timeout", STARTS_WITHIN)
        yield server
    finally:
        role.__exit__()
