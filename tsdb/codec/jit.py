"""Kernels: functions whose machine code is in the library of kernels (docs/decisions/kernels.md).

A kernel is called from Python; its annotations are its signature. A helper is a part of the kernels that call it, and
an intrinsic is an instruction that `kernel_build` writes. Outside kernels both run as the Python that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.kernel_library import library_of

Function = TypeVar("Function", bound=Callable[..., Any])
Scalar = TypeVar("Scalar", bound=np.generic)

Array2 = Annotated[NDArray[Scalar], 2]
"""An array of two dimensions. Without this annotation an array of a kernel has one."""
Array3 = Annotated[NDArray[Scalar], 3]


class Compiler(Protocol):
    """Compiles the decorated functions, in the process of a build."""

    def kernel(self, function: Callable[..., Any], keeps_gil: int) -> Any: ...
    def helper(self, function: Callable[..., Any]) -> Any: ...
    def intrinsic(self, function: Callable[..., Any]) -> Any: ...
    def has_feature(self, feature: str) -> bool: ...


NEVER, ALWAYS, IF_SMALL = range(3)  # When a kernel keeps the GIL, as in kernel_build/caller.h.

_compiler: Compiler | None = None


def use_compiler(compiler: Compiler) -> None:
    """Called by a build before it imports kernels."""
    global _compiler
    _compiler = compiler


def kernel(function: Function) -> Function:
    """The compiled `function`: without the GIL, IEEE floats (no fastmath), no bounds checks.

    A kernel checks its own bounds. Division by zero follows numpy (inf, nan, or 0 for integers), it never raises.
    """
    return _compiled(function, keeps_gil=NEVER)


def short_kernel(function: Function) -> Function:
    """A `kernel` that always keeps the GIL, for the work of one request or record, which takes microseconds whatever
    tables it looks into.

    A busy thread takes a GIL that is given up, and the kernel's thread then waits and wakes to have it back. With eight
    such kernels a request, a gateway spent an eighth of its CPU on that.
    """
    return _compiled(function, keeps_gil=ALWAYS)


def request_kernel(function: Function) -> Function:
    """A `kernel` over the bytes of a request. A call over arrays of less than 32,768 elements together keeps the GIL,
    as for a `short_kernel`: its work must follow the size of its arrays."""
    return _compiled(function, keeps_gil=IF_SMALL)


def _compiled(function: Function, *, keeps_gil: int) -> Function:
    if _compiler is not None:
        return cast(Function, _compiler.kernel(function, keeps_gil))
    return cast(Function, library_of(function.__module__).kernel(f"{function.__module__}.{function.__qualname__}"))


def helper(function: Function) -> Function:
    """Makes `function` a part of the kernels that call it."""
    return function if _compiler is None else cast(Function, _compiler.helper(function))


def intrinsic(function: Function) -> Function:
    """Gives `function` the code of its name in kernel_build/intrinsics.py, in the kernels that call it."""
    return function if _compiler is None else cast(Function, _compiler.intrinsic(function))


def target_has(feature: str) -> bool:
    """Whether the processors of a build have a feature, by LLVM's name. False outside a build."""
    return _compiler is not None and _compiler.has_feature(feature)
