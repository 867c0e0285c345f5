"""Puts the library of kernels into a wheel (docs/decisions/kernels.md). All else of the package is in pyproject.toml.

An editable install has no library: its sources change, and `make kernels` builds one into the user's cache.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

SOURCES = Path(__file__).resolve().parent
OLDEST_PYTHON = "cp311"  # The library uses the stable ABI, so one wheel serves this version and all later ones.


class BuildWithKernels(build_py):
    """Copies the sources as ever, then adds the library."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # Modules that a move has left there.
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib).resolve() / "tsdb" / "_kernels"
            subprocess.run([sys.executable, "-m", "kernel_build", "--into", str(folder)], cwd=SOURCES, check=True)


class WithMachineCode(Distribution):
    """Gives the wheel a tag of the platform."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    cmdclass={"build_py": BuildWithKernels},
    distclass=WithMachineCode,
    options={
        "bdist_wheel": {"py_limited_api": OLDEST_PYTHON},
        # A path in a .pth file: type checkers of other projects cannot follow the import hook of the default.
        "editable_wheel": {"mode": "compat"},
    },
)
