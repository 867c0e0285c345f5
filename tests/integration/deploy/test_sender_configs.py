"""The configuration for Prometheus on the page of senders is one that Prometheus takes. By its promtool."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from support.documents import blocks

PAGE = Path(__file__).resolve().parents[3] / "docs" / "senders.md"


def test_prometheus_takes_the_configuration(tmp_path: Path) -> None:
    command = shutil.which("promtool") or str(Path(sys.executable).parent / "promtool")
    assert Path(command).is_file(), "promtool is missing: `make programs` installs it"
    shown = next(block for block in blocks(PAGE) if block.section == "Prometheus")
    config = tmp_path / "prometheus.yml"
    config.write_text(shown.text)
    # The files of token and CA are the reader's.
    done = subprocess.run(
        [command, "check", "config", "--syntax-only", str(config)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
