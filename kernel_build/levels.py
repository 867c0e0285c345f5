"""Levels of processors: what LLVM compiles for, and what the library asks of the processor that loads it."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import llvmlite.binding as llvm

_X86_64_V2 = (
    "cmov",
    "crc32",
    "cx16",
    "cx8",
    "fxsr",
    "mmx",
    "popcnt",
    "sahf",
    "sse",
    "sse2",
    "sse3",
    "sse4.1",
    "sse4.2",
    "ssse3",
)
_X86_64_V3 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave", *_X86_64_V2)


@dataclass(frozen=True, slots=True)
class Level:
    """cpu, features: in LLVM's words. needed: features in the words of the C compiler, which the library asks for."""

    name: str
    cpu: str
    features: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()

    @property
    def flags(self) -> str:
        """The features as LLVM takes them."""
        return ",".join(f"+{feature}" for feature in self.features)


LEVELS = (
    Level("x86-64-v2", "x86-64-v2", _X86_64_V2, ("ssse3", "sse4.1", "sse4.2", "popcnt")),
    Level("x86-64-v3", "x86-64-v3", _X86_64_V3, ("sse4.2", "popcnt", "avx2", "bmi", "bmi2", "fma")),
)


def level_named(name: str) -> Level:
    """A level of LEVELS, `generic` (any processor of this machine's kind) or `native` (this very processor)."""
    for level in LEVELS:
        if level.name == name:
            if platform.machine() != "x86_64":
                raise SystemExit(
                    f"level {name} is of x86-64; this machine is {platform.machine()}: use generic or native"
                )
            return level
    if name == "generic":
        return Level(name, "generic")
    if name == "native":
        found = llvm.get_host_cpu_features()
        return Level(name, llvm.get_host_cpu_name(), tuple(sorted(feature for feature, here in found.items() if here)))
    known = ", ".join([level.name for level in LEVELS] + ["generic", "native"])
    raise SystemExit(f"unknown level of processors {name!r}; known are {known}")
