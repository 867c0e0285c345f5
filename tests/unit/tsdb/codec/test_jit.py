"""The kernel cache: reused while the sources it was made from stand, and never when one below has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOWER = "from tsdb.codec.jit import kernel\n@kernel\ndef lower(x):\n    return x + {step}\n"
UPPER = (
    "from tsdb.codec.jit import kernel\nfrom tsdb.trial_lower import lower\n"
    "@kernel\ndef upper(x):\n    return lower(x) * 2\n"
)
RUN = """
import sys, tsdb
tsdb.__path__.append(sys.argv[1])
from tsdb.codec.jit import Compiling, cache_root
names = []
with Compiling(names.append) as compiling:
    from tsdb.trial_upper import upper
    print(upper(1), sorted(set(names)), compiling.count == len(names), compiling.seconds > 0, cache_root())
"""


def run(folder: Path, cache: Path) -> str:
    """A fresh process with `tsdb.trial_*` from folder; what upper(1) gave and which kernels compiled."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "trial_lower.py").write_text(LOWER.format(step=1))
    (tmp_path / "trial_upper.py").write_text(UPPER)
    return tmp_path


def test_a_second_process_compiles_nothing(modules: Path) -> None:
    cache = modules / "cache"
    assert run(modules, cache) == f"4 ['lower', 'upper'] True True {cache}"
    assert run(modules, cache) == f"4 [] True False {cache}"


def test_a_change_in_a_called_kernel_reaches_its_caller(modules: Path) -> None:
    cache = modules / "cache"
    run(modules, cache)
    (modules / "trial_lower.py").write_text(LOWER.format(step=10))
    assert run(modules, cache).startswith("22 ['lower', 'upper']")


def test_an_unwritable_cache_folder_costs_the_cache_not_the_start(modules: Path) -> None:
    occupied = modules / "occupied"
    occupied.write_text("a file, not a folder")
    first = run(modules, occupied)
    assert first.startswith("4 ['lower', 'upper']")
    assert "kafka-tsdb-kernels-" in first
