"""A folder of snapshots belongs to production or to one experiment, and the other one is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsdb.model.errors import ConfigMismatch
from tsdb.store.snapshots.folder import SnapshotFolder


def use(path: Path, experiment: str = "") -> None:
    folder = SnapshotFolder(path, experiment)
    folder.open()
    folder.close()


@pytest.mark.parametrize(("first", "second"), [("", "trial"), ("trial", ""), ("trial", "other")])
def test_a_folder_keeps_its_first_owner(tmp_path: Path, first: str, second: str) -> None:
    use(tmp_path, first)
    with pytest.raises(ConfigMismatch, match=r"belongs to (production|experiment trial), and this store is of") as no:
        use(tmp_path, second)
    assert no.value.reason == "snapshot_dir_owner"
    use(tmp_path, first)


def test_snapshots_without_an_owner_are_those_of_production(tmp_path: Path) -> None:
    (tmp_path / "partition-0.snapshot").write_bytes(b"x")
    with pytest.raises(ConfigMismatch, match="belongs to production"):
        use(tmp_path, "trial")
    use(tmp_path)


def test_an_owner_that_was_not_written_is_no_owner(tmp_path: Path) -> None:
    (tmp_path / "owner").touch()
    use(tmp_path, "trial")
    with pytest.raises(ConfigMismatch, match="belongs to experiment trial"):
        use(tmp_path)


def test_two_stores_of_an_experiment_share_no_folder(tmp_path: Path) -> None:
    one = SnapshotFolder(tmp_path, "trial")
    one.open()
    with pytest.raises(ConfigMismatch, match="in use by process"):
        SnapshotFolder(tmp_path, "trial").open()
    one.close()
