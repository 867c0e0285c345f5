from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from support.servers.certificates import Authority
from tsdb.model.errors import ConfigMismatch
from tsdb.ops.tls import ServerTls


def test_a_key_of_another_certificate_refuses_the_start(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    cert_file, _ = authority.issue("a")
    _, key_file = authority.issue("b")
    with pytest.raises(ConfigMismatch, match=r"a\.pem.*b\.key") as caught:
        ServerTls(cert_file, key_file)
    assert caught.value.reason == "tls"


@pytest.mark.parametrize("broken", ["cert", "key", "ca"])
@pytest.mark.parametrize("content", [None, b"", b"no PEM"])
def test_files_that_do_not_work_refuse_the_start_by_name(tmp_path: Path, broken: str, content: bytes | None) -> None:
    authority = Authority.in_folder(tmp_path)
    cert_file, key_file = authority.issue("a")
    files = {"cert": cert_file, "key": key_file, "ca": authority.ca_file}
    files[broken].unlink()
    if content is not None:
        files[broken].write_bytes(content)
    with pytest.raises(ConfigMismatch, match=files[broken].name):
        ServerTls(files["cert"], files["key"], files["ca"])


def test_an_encrypted_key_refuses_the_start_instead_of_asking_for_its_passphrase(tmp_path: Path) -> None:
    cert_file, key_file = Authority.in_folder(tmp_path).issue("a")
    key = load_pem_private_key(key_file.read_bytes(), password=None)
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    with pytest.raises(ConfigMismatch, match="passphrase"):
        ServerTls(cert_file, key_file)
