"""The cache of one kernel: compiled code in the installed package first, then the folder of the user.

A wheel carries kernels that were compiled for a common level of processors (`LEVELS`). They are used where the
processor has all features of the level, and versions and sources are the same; otherwise the processor's own are
compiled. Only the search for code depends on the level: numba compiles for the own processor in every case.
"""

from __future__ import annotations

import functools
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime.nrt import rtsys

PACKAGED = Path(__file__).parents[1] / "_kernels"  # In a wheel; a checkout has no such folder.


@dataclass(frozen=True, slots=True)
class Level:
    """A level of processors: LLVM's name of it and LLVM's names of its features."""

    name: str
    features: tuple[str, ...]

    @property
    def flags(self) -> str:
        """The features as LLVM takes them."""
        return ",".join(f"+{feature}" for feature in self.features)


_X86_64_V3 = (
    "avx,avx2,bmi,bmi2,cmov,crc32,cx16,cx8,f16c,fma,fxsr,lzcnt,mmx,movbe,popcnt,sahf,sse,sse2,sse3,sse4.1,sse4.2,ssse3,"
    "xsave"
)
# By platform.machine(). x86-64-v3: Intel since Haswell (2013), AMD since Excavator (2015).
LEVELS = {"x86_64": Level("x86-64-v3", tuple(_X86_64_V3.split(",")))}


def versions() -> str:
    """Name of the folder of packaged kernels: what besides the sources decides whether they can be loaded."""
    python = f"{sys.implementation.cache_tag}{sys.abiflags}"
    return f"{python}-numba-{numba.__version__}-llvmlite-{llvmlite.__version__}"


def package(cache: str) -> None:
    """Move the kernels of a cache folder into the package: a step of building a wheel."""
    for file in Path(cache).glob("*/*/*/*"):
        module, stamp, _, name = file.relative_to(
            cache
        ).parts  # numba's own folder depends on the place of the sources.
        folder = PACKAGED / versions() / module / stamp
        folder.mkdir(parents=True, exist_ok=True)
        shutil.move(file, folder / name)


def runs_here(level: Level) -> bool:
    """Whether this processor and its operating system have all features of the level."""
    found = llvm.get_host_cpu_features()
    return all(found.get(feature, False) for feature in level.features)


class KernelCache(FunctionCache):
    """module_folder: folder of the kernel's module below the packaged kernels of these versions. It may not exist."""

    def __init__(self, function: Any, module_folder: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        level = _usable_level()
        self._packaged: tuple[_Target, IndexDataCacheFile] | None = None
        if level is not None:
            folder, stamp = PACKAGED / versions() / module_folder, self._impl.locator.get_source_stamp()
            self._packaged = _Target(level), IndexDataCacheFile(str(folder), self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Of numba's steps before a load, only the memory of arrays: its other libraries serve a compilation, which
        imports them itself. A process without a compilation starts 0.4 s of CPU sooner."""
        target_context.codegen()._library_class = KernelLibrary  # Of this kernel, whether it is loaded or compiled now.
        rtsys.initialize(target_context)
        return self._load_overload(sig, target_context)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        if self._packaged is not None:
            target, file = self._packaged
            data = file.load(self._index_key(sig, target))  # type: ignore[no-untyped-call]
            if data is not None:
                return self._impl.rebuild(target_context, data)
        return super()._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


class KernelLibrary(JITCodeLibrary):
    """The machine code of a kernel. The cache keeps the names of its symbols beside it.

    numba keeps intermediate code there, for callers to link, and parses it at each load. A kernel's callers use its
    symbol, so a role that loads a hundred kernels starts 0.3 s of CPU sooner without.
    """

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, list[str]]]:
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        module = self._final_module
        values = [*module.functions, *module.global_variables]
        symbols = [value.name for value in values if not value.is_declaration]
        return self.name, "object", (self._get_compiled_object(), symbols)  # type: ignore[no-untyped-call]

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> KernelLibrary:
        name, _, (object_code, symbols) = state
        library = cls(codegen, name)
        library.enable_object_caching()  # type: ignore[no-untyped-call]
        library._set_compiled_object(object_code)  # type: ignore[no-untyped-call]
        codegen._engine._defined_symbols.update(symbols)
        library._finalize_final_module()  # type: ignore[no-untyped-call]
        return library


class _Target:
    """The part of numba's code generator that numba makes a cache key of."""

    def __init__(self, level: Level) -> None:
        self._level = level

    def magic_tuple(self) -> tuple[str, str, str]:
        return llvm.get_process_triple(), self._level.name, self._level.flags


@functools.cache
def _usable_level() -> Level | None:
    """The level of the packaged kernels; None where the package has no kernels, or this processor cannot run them."""
    level = LEVELS.get(platform.machine())
    if level is None or not (PACKAGED / versions()).is_dir():
        return None
    # A target that the user has set (NUMBA_CPU_NAME, NUMBA_ENABLE_AVX=0) comes first.
    settings = vars(numba.config)
    target_set = settings["CPU_NAME"] or settings["CPU_FEATURES"] or not settings["ENABLE_AVX"]
    return None if target_set or not runs_here(level) else level
