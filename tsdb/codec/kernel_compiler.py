"""Compiles kernels and helpers with numba: each has one signature, and the code of each function is made once.

numba by itself compiles a function again for every integer width, literal and read-only array; it optimises each
function alone and again inside every caller; and it makes two Python wrappers for each. All of `tsdb warmup` then took
156 CPU seconds. Three rules replace that:

- OneSignature: the annotations of scalars are the signature, and a read-only array is an array.
- A helper is intermediate code, compiled only as a part of the kernels that call it.
- A kernel calls another kernel through a symbol. A cached kernel loads the kernels that it refers to before itself.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import functools
import gc
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba.core import types
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.errors import TypingError
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import NativeLowering

OPTIONS = {"nopython": True, "error_model": "numpy", "boundscheck": False, "no_cfunc_wrapper": True}

# A function owns memory if it calls one of these, or a function of ours that does. The arrays of all other functions
# need no reference counts: a fifth less code.
ALLOCATING = frozenset({"empty", "zeros", "full", "arange"})

_SCALARS = {
    "int": types.int64,
    "float": types.float64,
    "bool": types.boolean,
    "uint32": types.uint32,
    "uint64": types.uint64,
}


class OneSignature(CPUDispatcher):
    """Compiles for the scalars that the annotations name and for writable arrays, whatever the caller passes.

    numba no longer refuses a kernel that writes to a read-only array: the kernel writes to its outputs alone.
    """

    def __init__(self, function: Any, **options: Any) -> None:
        code = function.__code__
        super().__init__(function, {}, {**OPTIONS, **options})
        names = code.co_varnames[: code.co_argcount]
        self._scalars = [_scalar(function.__annotations__.get(name)) for name in names]
        self._aliases: set[tuple[Any, ...]] = set()  # Guarded by numba's lock.

    def __reduce__(self) -> Any:
        return _find, (self.py_func.__module__, self.py_func.__qualname__)

    @functools.cached_property
    def owns_memory(self) -> bool:
        """Whether it allocates arrays, or calls a function of ours that does and so has to free its result."""
        names = self.py_func.__code__.co_names
        called = [self.py_func.__globals__.get(name) for name in names]
        ours = [one for one in called if isinstance(one, OneSignature) and one is not self]
        return bool(ALLOCATING.intersection(names)) or any(one.owns_memory for one in ours)

    def compile(self, sig: Any) -> Any:
        self.targetoptions["_nrt"] = self.owns_memory
        arguments, _ = normalize_signature(sig)
        return super().compile(self._settled(arguments))

    def get_call_template(self, args: Any, kws: Any) -> Any:
        _, arguments = self._compiler.fold_argument_types(args, kws)  # type: ignore[attr-defined]
        return super().get_call_template(self._settled(arguments), {})

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        entry_point = super()._compile_for_args(*args, **kws)  # type: ignore[misc]
        # numba's fast path has only the settled types. With an alias the next call with these types takes it too.
        given = tuple(self.typeof_pyval(arg) for arg in args)
        with global_compiler_lock:
            # Of several threads only one inserts the alias, because the fast path treats a duplicate alias as
            # ambiguous.
            if given not in self.overloads and given not in self._aliases:
                self._aliases.add(given)
                self._insert([arg._code for arg in given], entry_point, False)  # type: ignore[attr-defined]
        return entry_point

    def _settled(self, arguments: Any) -> tuple[Any, ...]:
        return tuple(_settled(scalar, given) for scalar, given in zip(self._scalars, arguments, strict=True))


def _scalar(annotation: Any) -> Any:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return _SCALARS.get(name.removeprefix("np."))


def _settled(scalar: Any, given: Any) -> Any:
    if scalar is types.int64 and (given == types.uint64 or isinstance(given, types.Float)):
        raise TypingError(f"an argument annotated int is {given}: an int64 does not hold all its values")
    return scalar or _writable(given)


def _writable(given: Any) -> Any:
    """The type without the value of a literal and the read-only flag of an array: numba compiles again for each."""
    if isinstance(given, types.Tuple | types.UniTuple):
        return types.BaseTuple.from_types([_writable(item) for item in given])
    given = types.unliteral(given)
    if isinstance(given, types.Array) and not given.mutable:
        return given.copy(readonly=False)
    return given


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class KernelDispatcher(OneSignature):
    """A kernel: callable from Python, cached on disk, and a symbol to the kernels that call it."""

    _locked = False  # Guarded by numba's lock.

    def compile(self, sig: Any) -> Any:
        # numba's lock comes first in every thread. Across processes, a caller's file comes before those of its kernels.
        with global_compiler_lock, self._lock_file(), _without_collections():
            return super().compile(sig)

    @contextlib.contextmanager
    def _lock_file(self) -> Iterator[None]:
        """Hold a file lock: of two processes that need this kernel, the second finds it in the cache."""
        folder = self._cache.cache_path  # Is None without a cache.
        with contextlib.ExitStack() as held:
            if folder is not None and not self._locked:
                # Without the file, as in a folder that is read-only, both processes compile.
                with contextlib.suppress(OSError):
                    path = Path(folder) / f"{self.py_func.__qualname__}.lock"
                    fcntl.flock(held.enter_context(path.open("ab")), fcntl.LOCK_EX)
                    self._locked = True
                    held.callback(self._unlock)
            yield

    def _unlock(self) -> None:
        self._locked = False

    def use_cache(self, cache: FunctionCache) -> None:
        """Set the cache. Replaces numba's `enable_caching`, which would create its own cache."""
        self._cache = cache

    def add_overload(self, cres: Any) -> None:
        super().add_overload(cres)
        module, name, arguments = self.py_func.__module__, self.py_func.__qualname__, cres.signature.args
        symbol = copy.copy(cres.fndesc)
        symbol.mangled_name = f"{module}.{name}{arguments}"
        llvm.add_symbol(symbol.mangled_name, cres.library.get_pointer_to_function(cres.fndesc.mangled_name))
        # A library without code, by which the caller remembers this kernel.
        reference = HelperLibrary(cres.library.codegen, f"reference to {symbol.mangled_name}")  # type: ignore[no-untyped-call]
        reference._reload_init.add(functools.partial(_load, module, name, arguments))
        self.targetctx.remove_user_function(cres.entry_point)
        self.targetctx.insert_user_function(cres.entry_point, symbol, [reference])


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Pause Python's garbage collector, which takes a tenth of the time of a compilation: numba makes millions of
    objects and hardly any cycles. The caller holds numba's lock."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _load(module: str, name: str, arguments: Any) -> None:
    _find(module, name).compile(arguments)


class HelperDispatcher(OneSignature):
    """Dispatcher of a helper, a function that kernels call. A call from Python, as in tests, compiles it as a
    kernel."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, no_cpython_wrapper=True)
        self._compiler.pipeline_class = HelperCompiler  # type: ignore[attr-defined]

    def __call__(self, *args: Any) -> Any:
        return self._kernel(*args)

    @functools.cached_property
    def _kernel(self) -> KernelDispatcher:
        return KernelDispatcher(self.py_func)

    def add_overload(self, cres: Any) -> None:
        self.overloads[tuple(cres.signature.args)] = cres


class HelperLibrary(JITCodeLibrary):
    """Intermediate code for callers to link: never optimised as a whole or made machine code by itself."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return self._final_module


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerHelper(NativeLowering):
    """numba's lowering, which ends with intermediate code here."""

    _name = "lower_helper"

    def run_pass(self, state: Any) -> bool:
        state.library = HelperLibrary(state.targetctx.codegen(), state.func_id.func_qualname)  # type: ignore[no-untyped-call]
        state.flags.no_compile = True
        super().run_pass(state)  # type: ignore[no-untyped-call]
        lowered = state["cr"]
        key = object()  # The key under which numba stores the entry point, by which it finds the function again.
        state.targetctx.insert_user_function(key, lowered.fndesc, [state.library])
        state["cr"] = _LowerResult(lowered.fndesc, lowered.call_helper, cfunc=key, env=lowered.env)
        return True


class HelperCompiler(CompilerBase):
    """numba's pipeline, with LowerHelper in place of its lowering."""

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        steps = pipeline.passes
        pipeline.passes = [(LowerHelper if step is NativeLowering else step, text) for step, text in steps]
        pipeline.finalize()
        return [pipeline]
