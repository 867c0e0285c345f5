"""After the warm-up nothing of a head's life compiles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_a_head_that_lives_after_the_warm_up_compiles_nothing() -> None:
    """In a new process, because other tests have compiled kernels in this one."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/support/scripts/compiled_after_warm_up.py")],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert json.loads(done.stdout) == []


def test_kernels_free_all_that_they_and_their_helpers_allocate() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/support/scripts/kernel_memory.py")],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "", "HOME": str(Path.home()), "NUMBA_NRT_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert json.loads(done.stdout) == [0, 0]
