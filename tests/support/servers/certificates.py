"""Certificates for TLS tests, written as PEM files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Authority:
    """A CA, and the certificates that it signs as files in `folder`."""

    ca: trustme.CA
    folder: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Authority:
        folder.mkdir(parents=True, exist_ok=True)
        return cls(trustme.CA(key_type=trustme.KeyType.ECDSA), folder)

    @property
    def ca_file(self) -> Path:
        path = self.folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(path))
        return path

    def issue(self, name: str, host: str = "127.0.0.1") -> tuple[Path, Path]:
        """A certificate for `host` and its key, as files named after `name`; overwrites older ones of that name."""
        certificate = self.ca.issue_cert(host, key_type=trustme.KeyType.ECDSA)
        cert_file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert_file.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(str(key_file))
        return cert_file, key_file
