"""Runs a script of this folder as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def run_script(name: str, timeout_s: float = 240.0, **environment: str) -> Any:
    """The JSON that the script prints. Its environment is HOME, where compiled kernels are, and `environment`."""
    done = subprocess.run(
        [sys.executable, "-m", f"support.scripts.{name}"],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "", "HOME": str(Path.home()), **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=True,
    )
    return json.loads(done.stdout)
