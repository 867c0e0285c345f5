"""After the warm-up a chunk stage compiles no kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_a_stage_that_lives_after_the_warm_up_compiles_nothing() -> None:
    """In a separate process, because other tests have compiled kernels in this one."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/support/scripts/chunks_after_warm_up.py")],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert json.loads(done.stdout) == []
