"""The programs of docs/client.md run as printed, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.documents import blocks
from support.servers.processes import Role

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
WITHIN_S = 120.0


def test_the_programs_of_the_page_run_as_printed(tmp_path: Path) -> None:
    programs = [block.text for block in blocks(PAGE) if block.language == "python"]
    assert len(programs) == 4
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), "--native-histograms", "keep") as role:
        text = "\n\n".join(programs).replace("127.0.0.1:7410", role.grpc)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "room_temperature" in done.stdout
    assert "hall" in done.stdout
