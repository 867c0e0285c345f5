"""Attacks the promise that names are resolved again: a server comes back with another address under the same name, and
every client of it works again within a minute. Cassandra's move is in test_cassandra_outage.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.scripts import moved_names


@pytest.mark.parametrize("kind", ["kafka", "grpc"])
def test_clients_find_a_server_that_moved_under_its_name(tmp_path: Path, kind: str) -> None:
    script = [sys.executable, str(Path(moved_names.__file__)), str(tmp_path / "hosts"), kind]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", *script],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"},
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-4000:]
