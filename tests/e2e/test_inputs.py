"""The command takes whatever the world sends: it ends, with the right exit code and one line, and nothing hangs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_reader import FakeServer
from support.processes import run_tsdb
from tsdb.model.labels import canonical_labels

WITHIN_S = 30.0  # A start costs a second on a busy machine; a hang costs all of it.


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def test_a_line_with_an_exemplar_ends(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "x.prom").write_text('a{x="1"} 3 1000 # {t="a"} 0.5\n')
    done = run_tsdb("write", str(tmp_path / "x.prom"), "--address", server.address, timeout_s=WITHIN_S)
    assert done.returncode == 0, done
    assert server.samples == {canonical_labels({"__name__": "a", "x": "1"}): [(1000, 3.0)]}


def test_a_file_without_the_columns_is_one_line_and_exit_code_1(server: FakeServer, tmp_path: Path) -> None:
    # Larger than one block: the reader of the next one was a thread that the end of the process met.
    (tmp_path / "x.csv").write_bytes(b"a,b,c\n" + b"1,2,3\n" * 5_000_000)
    done = run_tsdb("write", str(tmp_path / "x.csv"), "--address", server.address, timeout_s=WITHIN_S)
    assert done.returncode == 1, done
    assert b"no column labels, ts_ms, value" in done.stderr.splitlines()[-1]
