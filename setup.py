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
TARGET_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")
# Kernels that the cache has already, of the same sources, are not compiled again.
TAKE_KERNELS = """
import importlib, subprocess, sys
from pathlib import Path
from tsdb.codec.kernel_cache import LEVELS, package, runs_here
level = LEVELS["x86_64"]
if not runs_here(level):
    print(f"this processor is below {level.name}: the wheel gets no kernels")
    sys.exit()
subprocess.run([sys.executable, "-m", "tsdb.cli.main", "warmup"], check=True)
sources = [path.relative_to(sys.argv[1]) for path in Path(sys.argv[1]).rglob("*.py")]
for name in {source.parts[0] for source in sources if len(source.parts) > 1}:
    importlib.import_module(name)
package(".".join(source.with_suffix("").parts) for source in sources)
"""


class BuildWithKernels(build_py):
    """Copies the sources as ever, then compiles the kernels of the copies."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # Modules that a move has left there.
        super().run()
        if HAS_LEVEL and not self.editable_mode:
            add_kernels(str(Path(self.build_lib).resolve()))


def add_kernels(sources: str) -> None:
    """Run all warm-ups of `sources`, then copy their kernels from the cache into the package."""
    environment = {name: value for name, value in os.environ.items() if name not in TARGET_SETTINGS}
    path = os.pathsep.join(filter(None, [sources, os.environ.get("PYTHONPATH")]))
    environment |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as elsewhere:  # Python also imports from the current folder.
        subprocess.run([sys.executable, "-c", TAKE_KERNELS, sources], cwd=elsewhere, env=environment, check=True)


class WithMachineCode(Distribution):
    """Gives the wheel a tag of the platform and of the version of Python."""

    def has_ext_modules(self) -> bool:
        return HAS_LEVEL


setup(cmdclass={"build_py": BuildWithKernels}, distclass=WithMachineCode)
