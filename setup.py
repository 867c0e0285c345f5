"""Puts compiled kernels into a wheel, for the common processors of the platform (tsdb.codec.kernel_cache).

An editable install has none: its sources change. All else about the package is in pyproject.toml.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HAS_LEVEL = platform.machine() == "x86_64"  # As tsdb.codec.kernel_cache.LEVELS; an editable build cannot import that.
COMPILE = """
import os, sys
from tsdb.codec.kernel_cache import LEVELS, runs_here
level = LEVELS["x86_64"]
if not runs_here(level):
    print(f"this processor is below {level.name}: the wheel gets no kernels")
    sys.exit()
# numba reads both at its import, so it is imported again.
os.environ.update(NUMBA_CPU_NAME=level.name, NUMBA_CPU_FEATURES=level.flags)
os.execv(sys.executable, [sys.executable, "-m", "tsdb.cli.main", "warmup"])
"""
TAKE = "import sys; from tsdb.codec.kernel_cache import package; package(sys.argv[1])"


class BuildWithKernels(build_py):
    """Copies the sources as ever, then compiles the kernels of the copies."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # Modules that a move has left there.
        super().run()
        if HAS_LEVEL and not self.editable_mode:
            with tempfile.TemporaryDirectory() as cache:
                compile_kernels(Path(self.build_lib).resolve(), Path(cache))


def compile_kernels(sources: Path, cache: Path) -> None:
    """Run all warm-ups of `sources` with an empty cache, and take the cache's files into the package."""
    path = os.pathsep.join(filter(None, [str(sources), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    for arguments in (["-c", COMPILE], ["-c", TAKE, str(cache)]):
        subprocess.run([sys.executable, *arguments], cwd=cache, env=environment, check=True)


class WithMachineCode(Distribution):
    """Gives the wheel a tag of the platform and of the version of Python."""

    def has_ext_modules(self) -> bool:
        return HAS_LEVEL


setup(cmdclass={"build_py": BuildWithKernels}, distclass=WithMachineCode)
