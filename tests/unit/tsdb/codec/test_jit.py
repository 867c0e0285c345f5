"""The kernel cache: reused while the sources it was made from stand, and never when one below has changed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import llvmlite.binding as llvm
import pytest

PROCESSES = 3
LOWER = "from tsdb.codec.jit import kernel\n@kernel\ndef lower(x):\n    return x + {step}\n"
UPPER = (
    "from tsdb.codec.jit import kernel\nfrom tsdb.trial_lower import lower\n"
    "@kernel\ndef upper(x):\n    return lower(x) * 2\n"
)
RUN = """
import sys, tsdb
tsdb.__path__.append(sys.argv[1])
from tsdb.codec.jit import Compiling
from tsdb.codec.kernel_folders import cache_root
names = []
with Compiling(names.append) as compiling:
    from tsdb.trial_upper import upper
    print(upper(1), sorted(set(names)), compiling.count == len(names), compiling.seconds > 0, cache_root())
if sys.argv[2:]:
    print(sys.argv[2] in sys.modules)
"""
# A part of numba that only a compilation needs.
OF_COMPILER = "numba.np.linalg"


def run(folder: Path, cache: Path, *module: str) -> str:
    """A fresh process with `tsdb.trial_*` from folder; what upper(1) gave and which kernels compiled.

    module: the next line says whether the process has imported it.
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder), *module], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def written(folder: Path) -> Path:
    (folder / "trial_lower.py").write_text(LOWER.format(step=1))
    (folder / "trial_upper.py").write_text(UPPER)
    return folder


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.mark.slow
def test_a_second_process_compiles_nothing(modules: Path) -> None:
    cache = modules / "cache"
    assert run(modules, cache) == f"4 ['lower', 'upper'] True True {cache}"
    assert run(modules, cache) == f"4 [] True False {cache}"


@pytest.mark.slow
def test_a_process_with_cached_kernels_imports_no_compiler(modules: Path) -> None:
    cache = modules / "cache"
    assert run(modules, cache, OF_COMPILER).endswith("\nTrue")
    assert run(modules, cache, OF_COMPILER).endswith("\nFalse")


@pytest.mark.slow
def test_processes_that_start_together_compile_each_kernel_once(modules: Path) -> None:
    cache = modules / "cache"
    with ThreadPoolExecutor(PROCESSES) as threads:
        found = sorted(threads.map(lambda _: run(modules, cache), range(PROCESSES)))
    compiled = [re.findall("'([a-z]+)'", line) for line in found]
    assert sorted(chain(*compiled)) == ["lower", "upper"], found


@pytest.mark.slow
def test_a_change_in_a_called_kernel_reaches_its_caller(modules: Path) -> None:
    cache = modules / "cache"
    run(modules, cache)
    (modules / "trial_lower.py").write_text(LOWER.format(step=10))
    assert run(modules, cache).startswith("22 ['lower', 'upper']")


@pytest.mark.slow
def test_an_unwritable_cache_folder_costs_the_cache_not_the_start(modules: Path) -> None:
    occupied = modules / "occupied"
    occupied.write_text("a file, not a folder")
    first = run(modules, occupied)
    assert first.startswith("4 ['lower', 'upper']")
    assert "kafka-tsdb-kernels-" in first


KINDS = """
import numpy as np
from tsdb.codec.jit import helper, kernel

@helper
def at(values, index: int):
    return values[index]

@kernel
def first(values, index: int):
    return at(values, 0) + index

@kernel
def both(values, small):
    return first(values, 1) + first(values, small[0])
"""
RUN_KINDS = """
import sys, tsdb, numpy as np
tsdb.__path__.append(sys.argv[1])
from tsdb.codec.jit import Compiling
names = []
with Compiling(names.append):
    from tsdb.trial_kinds import at, both, first
    values = np.array([5, 6])
    fixed = values.copy()
    fixed.flags.writeable = False
    found = [both(values, np.array([2], np.uint8)), first(values, 1), first(fixed, np.uint32(1)), first(fixed, True)]
print(found, names, len(first.signatures), at(values, 1))
"""


@pytest.mark.slow
def test_each_function_compiles_once_whatever_the_integers_are_and_read_only_arrays_too(tmp_path: Path) -> None:
    (tmp_path / "trial_kinds.py").write_text(KINDS)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", RUN_KINDS, str(tmp_path)]
    answers = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
        for _ in range(2)
    ]
    # The last is a helper's own answer: tests call helpers. The cached `both` loads `first`.
    assert answers == ["[13, 6, 6, 6] ['both', 'first', 'at'] 1 6", "[13, 6, 6, 6] [] 1 6"]


FEATURE = next(name for name, here in llvm.get_host_cpu_features().items() if here)
RUN_PACKAGED = """
import sys, tsdb
from pathlib import Path
from tsdb.codec import kernel_cache
folder, features, step = sys.argv[1:]
tsdb.__path__.append(folder)
kernel_cache.PACKAGED = Path(folder) / "packaged"
if features:
    level = kernel_cache.Level("generic", tuple(features.split(",")))
    kernel_cache.LEVELS = {kernel_cache.platform.machine(): level}
if step == "package":
    kernel_cache.compile_for_level()
from tsdb.codec.jit import Compiling
names = []
with Compiling(names.append):
    from tsdb.trial_upper import upper
    print(upper(1), sorted(set(names)))
if step == "package":
    kernel_cache.package(["tsdb.trial_lower", "tsdb.trial_upper", "tsdb.codec.jit"])
"""


def run_packaged(folder: Path, cache: Path, features: str, step: str = "", **variables: str) -> str:
    """Result of upper(1) and the compiled kernels, in a process whose package is for a level of these features."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), **variables}
    command = [sys.executable, "-c", RUN_PACKAGED, str(folder), features, step]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with the kernels of trial_upper and trial_lower."""
    modules = written(tmp_path_factory.mktemp("packaged"))
    assert run_packaged(modules, modules / "cache", FEATURE, "package") == "4 ['lower', 'upper']"
    return modules


@pytest.mark.slow
def test_a_processor_of_the_packages_level_compiles_nothing(packaged: Path, tmp_path: Path) -> None:
    assert run_packaged(packaged, tmp_path, FEATURE) == "4 []"
    assert not list(tmp_path.rglob("*.nbi"))


@pytest.mark.slow
def test_kernels_of_the_level_in_the_users_cache_are_used(packaged: Path, tmp_path: Path) -> None:
    assert run_packaged(written(tmp_path), packaged / "cache", FEATURE) == "4 []"


@pytest.mark.slow
def test_a_processor_below_the_packages_level_compiles(packaged: Path, tmp_path: Path) -> None:
    assert run_packaged(packaged, tmp_path, f"{FEATURE},no_such_feature") == "4 ['lower', 'upper']"


@pytest.mark.slow
def test_a_target_set_by_the_user_comes_before_the_package(packaged: Path, tmp_path: Path) -> None:
    assert run_packaged(packaged, tmp_path, FEATURE, NUMBA_CPU_NAME="generic") == "4 ['lower', 'upper']"


@pytest.mark.slow
def test_packaged_kernels_of_other_sources_are_not_used(packaged: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(packaged, tmp_path / "changed"))
    (changed / "trial_lower.py").write_text(LOWER.format(step=10))
    assert run_packaged(changed, tmp_path, FEATURE) == "22 ['lower', 'upper']"
