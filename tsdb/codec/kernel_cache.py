"""The cache of one kernel looks for compiled code in the installed package first, then in the folder of the user.

`tsdb warmup` compiles for a common level of processors (`LEVELS`), and a wheel carries such kernels. They are used
where the processor has all features of the level, and versions and sources are the same. Otherwise a process compiles
for its own processor, which gives no faster code (`bench codec`, `bench decode`, `bench apply`).
"""

from __future__ import annotations

import functools
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
    _SourceFileBackedLocatorMixin,
)
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import _nrt_python as runtime  # type: ignore[attr-defined]  # C: no stubs

from tsdb.codec.kernel_folders import cache_root, cached_folder, module_folder

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
# CPU names by platform.machine(). x86-64-v3 covers Intel since Haswell (2013) and AMD since Excavator (2015).
LEVELS = {"x86_64": Level("x86-64-v3", tuple(_X86_64_V3.split(",")))}


def versions() -> str:
    """Name of the folder of packaged kernels: what besides the sources decides whether they can be loaded."""
    python = f"{sys.implementation.cache_tag}{sys.abiflags}"
    return f"{python}-numba-{numba.__version__}-llvmlite-{llvmlite.__version__}"


def package(modules: Iterable[str]) -> None:
    """Copy the cached kernels of the modules into the package: a step of building a wheel."""
    for module in modules:
        cached = cache_root() / module_folder(module)
        if cached.is_dir():
            folder = PACKAGED / versions() / module_folder(module)
            shutil.copytree(cached, folder, ignore=shutil.ignore_patterns("*.lock"), dirs_exist_ok=True)


def runs_here(level: Level) -> bool:
    """Whether this processor and its operating system have all features of the level."""
    found = llvm.get_host_cpu_features()
    return all(found.get(feature, False) for feature in level.features)


@functools.cache
def usable_level() -> Level | None:
    """The level whose kernels run here; None where the processor lacks a feature, or the user has set a target."""
    level = LEVELS.get(platform.machine())
    settings = vars(numba.config)
    target_set = settings["CPU_NAME"] or settings["CPU_FEATURES"] or not settings["ENABLE_AVX"]
    return None if level is None or target_set or not runs_here(level) else level


def compile_for_level() -> None:
    """Make numba compile for the level, if it runs here. For a process of ours, before it imports kernels: numba takes
    its target once, and a program that imports our client may have kernels too."""
    level = usable_level()
    if level is not None:
        vars(numba.config).update(CPU_NAME=level.name, CPU_FEATURES=level.flags)


class KernelLocator(_SourceFileBackedLocatorMixin, _CacheLocator):
    """Locates the folder of a kernel's module in the cache. numba's own choice depends on the location of the
    sources."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file
        self._lineno = function.__code__.co_firstlineno
        self._folder = cached_folder(function.__module__)

    def get_cache_path(self) -> str:
        return str(self._folder)

    @classmethod
    def from_function(cls, function: Any, file: str) -> KernelLocator:
        return cls(function, file)


class KernelFiles(CompileResultCacheImpl):
    """numba's format of a cached kernel, in the folders of `KernelLocator`."""

    _locator_classes = [KernelLocator]  # noqa: RUF012  # numba's own type.


class KernelCache(FunctionCache):
    """Looks into the installed package first, which has kernels if it came as a wheel."""

    _impl_class = KernelFiles

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        folder = PACKAGED / versions() / module_folder(function.__module__)
        stamp = self._impl.locator.get_source_stamp()
        self._packaged = IndexDataCacheFile(str(folder), self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a compiled kernel. Of numba's steps before a load, it does only the registration of the functions for
        arrays' memory. The other steps serve a compilation, which does them itself. A process without a compilation
        starts 0.4 s of CPU sooner."""
        # The library of this kernel, whether it is loaded or compiled now.
        target_context.codegen()._library_class = KernelLibrary
        _register_runtime()
        return self._load_overload(sig, target_context)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        level = usable_level()
        if level is not None:
            key = self._index_key(sig, _Target(level))  # type: ignore[no-untyped-call]
            for file in (self._packaged, self._cache_file):
                data = file.load(key)
                if data is not None:
                    return self._impl.rebuild(target_context, data)
        return super()._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


@functools.cache
def _register_runtime() -> None:
    """Make the C functions of numba's runtime known to the linker. numba's own set-up also compiles a library that only
    a compilation needs: that reads a third of LLVM's code, 21 MiB of each process."""
    for name, address in runtime.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _Target:
    """The part of numba's code generator that numba makes a cache key of."""

    def __init__(self, level: Level) -> None:
        self._level = level

    def magic_tuple(self) -> tuple[str, str, str]:
        return llvm.get_process_triple(), self._level.name, self._level.flags


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
