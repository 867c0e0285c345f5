"""Attacks the promise that an acknowledged row of an embedded history stays: its process is killed while it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.servers.histories import META, row
from tsdb.history.interface import WindowRange
from tsdb.history.open import open_history, open_history_admin
from tsdb.history.rows import MONTH_MS
from tsdb.history.shared_settings import ensure_history

ROOT = Path(__file__).parents[2]
KILLS = 5
ROWS_LEAST = 300


def test_every_row_that_was_acknowledged_before_a_kill_is_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    with open_history_admin(url) as admin:
        ensure_history(admin, META)
    for _ in range(KILLS):
        acknowledged = write_until_killed(url)
        with open_history(url) as store:
            for pack in range(7):
                numbers = [number for number in acknowledged if number % 7 == pack]
                found = [one for piece in store.read([pack], WindowRange(0, 90 * MONTH_MS)) for one in piece]
                wanted = [row(pack, number // 7, value=b"%d" % number * 100) for number in sorted(numbers)]
                assert {one.key: one.value for one in wanted}.items() <= {one.key: one.value for one in found}.items()


def write_until_killed(url: str) -> list[int]:
    """Numbers of the rows that the process printed as acknowledged."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "support.scripts.history_writer", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(ROWS_LEAST)]
        process.kill()
        # The last line may be cut.
        *rest, _ = process.stdout.read().split("\n")
    return said + [int(line) for line in rest]
