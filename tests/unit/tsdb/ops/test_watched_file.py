from __future__ import annotations

import os
from pathlib import Path

import pytest

from tsdb.model.clock import ManualClock
from tsdb.model.errors import ConfigMismatch
from tsdb.ops.watched_file import WatchedFile


class Bench:
    """A watched file whose content must be digits."""

    def __init__(self, file: Path, look_every_s: float = 0.0) -> None:
        self.file = file
        self.clock = ManualClock()
        self.reads = self.failures = 0
        self.write("1")
        self.watched = WatchedFile(file, self._read, self.clock, look_every_s=look_every_s, on_failure=self._failed)

    def write(self, text: str) -> None:
        """Replaced, so that its stamp is another one however coarse the file system's times are."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        os.replace(fresh, self.file)

    def _read(self, file: Path) -> int:
        self.reads += 1
        try:
            return int(file.read_text())
        except (OSError, ValueError) as error:
            raise ConfigMismatch(f"{file}: {error}") from error

    def _failed(self) -> None:
        self.failures += 1


def test_a_file_is_read_once_for_each_change(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "f")
    assert [bench.watched.now() for _ in range(3)] == [1, 1, 1]
    bench.write("2")
    assert [bench.watched.now() for _ in range(3)] == [2, 2, 2]
    assert bench.reads == 2


@pytest.mark.parametrize("text", ["no number", None])
def test_what_was_read_stays_while_the_file_is_wrong_or_gone_and_each_change_fails_once(
    tmp_path: Path, text: str | None
) -> None:
    bench = Bench(tmp_path / "f")
    if text is None:
        bench.file.unlink()
    else:
        bench.write(text)
    assert [bench.watched.now() for _ in range(3)] == [1, 1, 1]
    assert bench.failures == 1
    bench.write("3")
    assert bench.watched.now() == 3


def test_the_file_is_looked_at_as_often_as_asked(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "f", look_every_s=1.0)
    bench.write("2")
    bench.clock.advance(999)
    assert bench.watched.now() == 1
    bench.clock.advance(1)
    assert bench.watched.now() == 2


def test_a_change_of_rights_is_a_change(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "f")
    bench.file.chmod(0o600)
    bench.watched.now()
    assert bench.reads == 2


def test_a_file_that_is_wrong_at_the_start_is_refused(tmp_path: Path) -> None:
    def refuse(file: Path) -> int:
        raise ConfigMismatch(f"{file} is wrong")

    with pytest.raises(ConfigMismatch, match="is wrong"):
        WatchedFile(tmp_path / "f", refuse, ManualClock())
