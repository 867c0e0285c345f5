"""A data folder belongs to one process, and a folder that cannot be used is named with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tsdb.model.errors import ConfigMismatch
from tsdb.roles.data_folder import DataFolder


def test_a_folder_is_made_and_locked_until_the_end(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "a/b")
    with pytest.raises(ConfigMismatch, match=f"a/b is in use by process {os.getpid()}") as refused:
        DataFolder(tmp_path / "a/b")
    assert refused.value.reason == "data_dir_in_use"
    folder.close()
    with pytest.raises(ConfigMismatch, match="in use"):
        DataFolder(tmp_path / "a/b")
    assert folder.join(60.0)
    DataFolder(tmp_path / "a/b").abort()


@pytest.mark.parametrize(("name", "why"), [("file", "it is not a folder"), ("file/inside", "Not a directory")])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigMismatch, match=f"{tmp_path / name} cannot be used: {why}") as refused:
        DataFolder(tmp_path / name)
    assert refused.value.reason == "data_dir"
