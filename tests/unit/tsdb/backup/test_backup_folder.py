"""The folder of a backup, on a local disk and on another file system of Arrow."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tsdb.backup.folder import BackupFolder
from tsdb.model.errors import Unavailable


@pytest.fixture(params=["local", "mock"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> BackupFolder:
    return BackupFolder(f"{tmp_path}/of/backup" if request.param == "local" else "mock://bucket/backup")


def test_files_are_written_and_read_back(folder: BackupFolder) -> None:
    assert folder.is_empty()
    assert not folder.has("a/b.bin")
    assert folder.size("a/b.bin") is None
    with folder.writing("a/b.bin") as file:
        file.write(b"some ")
        file.write(memoryview(b"bytes"))
    assert (file.size, file.sha256) == (10, hashlib.sha256(b"some bytes").hexdigest())
    folder.put("manifest.json", b"{}")
    folder.put("manifest.json", b"{ }")
    assert not folder.is_empty()
    assert (folder.has("a/b.bin"), folder.size("a/b.bin"), folder.read("manifest.json")) == (True, 10, b"{ }")
    assert b"".join(folder.pieces("a/b.bin")) == b"some bytes"
    with folder.reading("a/b.bin") as stream:
        stream.seek(5)
        assert stream.read() == b"bytes"


def test_a_small_file_appears_whole_or_not_at_all(folder: BackupFolder) -> None:
    folder.put("manifest.json", b"{}")
    assert not folder.has("manifest.json.new"), "it has got its name"


def test_an_error_of_the_file_system_is_one_of_ours(folder: BackupFolder) -> None:
    with pytest.raises(Unavailable, match="reading backup") as error:
        folder.read("missing.json")
    assert error.value.reason == "disk_error"
