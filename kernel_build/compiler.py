"""Compiles the kernels of a module with numba: each has one signature, and the code of each function is made once.

numba by itself compiles a function again for every integer width, literal and read-only array; it optimises each
function alone and again inside every caller; and it makes two Python wrappers for each. Three rules replace that:

- The annotations of a kernel are its signature; those of a helper's scalars are a part of its signature.
- A helper is intermediate code, compiled only as a part of the kernels that call it.
- A kernel calls another kernel through a symbol, so each module is compiled apart from the modules that it uses.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types, typing
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.errors import TypingError
from numba.core.funcdesc import FunctionDescriptor
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import make_concrete_template
from numba.extending import intrinsic

from kernel_build.intrinsics import INTRINSICS
from kernel_build.levels import Level
from kernel_build.signatures import Signature, scalar_types, signature_of

OPTIONS = {
    "nopython": True,
    "error_model": "numpy",
    "boundscheck": False,
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
}

# A function owns memory if it calls one of these, or a function of ours that does. The arrays of all other functions
# need no reference counts: a fifth less code.
ALLOCATING = frozenset({"empty", "zeros", "full", "arange"})

SLOT = ir.IntType(64)
STATUS = ir.IntType(32)


class _Function(CPUDispatcher):
    """A kernel or a helper as numba sees it while it compiles its callers."""

    # numba does not export the types of these.
    _compiler: Any
    targetctx: Any
    overloads: Any

    def __init__(self, function: Any, pipeline: type[CompilerBase]) -> None:
        super().__init__(function, {}, dict(OPTIONS))
        self._compiler.pipeline_class = pipeline

    @functools.cached_property
    def owns_memory(self) -> bool:
        """Whether it allocates arrays, or calls a function of ours that does and so has to free its result."""
        names = self.py_func.__code__.co_names
        called = [self.py_func.__globals__.get(name) for name in names]
        ours = [one for one in called if isinstance(one, _Function) and one is not self]
        return bool(ALLOCATING.intersection(names)) or any(one.owns_memory for one in ours)

    def compile(self, sig: Any) -> Any:
        self.targetoptions["_nrt"] = self.owns_memory
        return super().compile(sig)


class Helper(_Function):
    """A function that kernels call: intermediate code, for the scalars that its annotations name and for writable
    arrays, whatever the caller passes."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, HelperCompiler)
        self._scalars = scalar_types(function)

    def compile(self, sig: Any) -> Any:
        arguments, _ = normalize_signature(sig)
        return super().compile(self._settled(arguments))

    def get_call_template(self, args: Any, kws: Any) -> Any:
        _, arguments = self._compiler.fold_argument_types(args, kws)
        return super().get_call_template(self._settled(arguments), {})

    def add_overload(self, cres: Any) -> None:
        self.overloads[tuple(cres.signature.args)] = cres

    def _settled(self, arguments: Any) -> tuple[Any, ...]:
        return tuple(_settled(scalar, given) for scalar, given in zip(self._scalars, arguments, strict=True))


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


class Kernel(_Function):
    """A kernel: a symbol to the kernels that call it. `code()` compiles it."""

    def __init__(self, function: Any, keeps_gil: int) -> None:
        super().__init__(function, HelperCompiler)
        self.keeps_gil = keeps_gil
        self.symbol = f"{function.__module__}.{function.__qualname__}"

    @functools.cached_property
    def declared(self) -> Signature:
        return signature_of(self.py_func)

    @functools.cached_property
    def descriptor(self) -> FunctionDescriptor:
        """The symbol and the types of the machine code, as numba needs them for a call."""
        declared, function = self.declared, self.py_func
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        return FunctionDescriptor(
            native=True,
            modname=function.__module__,
            qualname=function.__qualname__,
            unique_name=self.symbol,
            doc="",
            typemap=None,
            restype=declared.result,
            calltypes=None,
            args=names,
            kws=(),
            mangler=lambda *_, **__: self.symbol,
            argtypes=declared.arguments,
        )

    def get_call_template(self, args: Any, kws: Any) -> Any:
        declared = self.declared
        if declared.arguments not in self.overloads:
            entry_point = object()  # The key under which numba stores the function, by which it finds it again.
            signature = typing.signature(declared.result, *declared.arguments)  # type: ignore[attr-defined, no-untyped-call]
            self.overloads[declared.arguments] = SimpleNamespace(
                signature=signature, objectmode=False, entry_point=entry_point
            )
            self.targetctx.insert_user_function(entry_point, self.descriptor, [])
        template = make_concrete_template(
            f"Call of {self.symbol}", key=self.py_func.__name__, signatures=self.nopython_signatures
        )
        return template, self._compiler.pysig, args, kws

    def code(self) -> llvm.ModuleRef:
        """The optimised module of the kernel: its code and the entry for the library's caller."""
        declared = self.declared
        self.targetoptions["_nrt"] = self.owns_memory
        with global_compiler_lock:
            compiled = self._compiler.compile(declared.arguments, declared.result)
            library = KernelLibrary(compiled.library.codegen, self.symbol)  # type: ignore[no-untyped-call]
            library.add_linking_library(compiled.library)  # type: ignore[no-untyped-call]
            library.add_ir_module(self._entry(compiled.fndesc))  # type: ignore[no-untyped-call]
            return library.optimised(compiled.fndesc.mangled_name, self.symbol)

    def _entry(self, descriptor: FunctionDescriptor) -> ir.Module:
        """A module with the function `<symbol>.entry`, of the type of `Entry.call` in caller.h."""
        context, declared = self.targetctx, self.declared
        module = context.codegen()._create_empty_module(f"{self.symbol}.entry")
        pointer = SLOT.as_pointer()
        entry = ir.Function(module, ir.FunctionType(STATUS, [pointer, pointer]), f"{self.symbol}.entry")
        builder = ir.IRBuilder(entry.append_basic_block())
        slots = _Slots(context, builder, entry.args[0])
        arguments = [slots.read(kind) for kind in declared.arguments]
        kernel = context.declare_function(module, descriptor)
        status, result = context.call_conv.call_function(
            builder, kernel, declared.result, declared.arguments, arguments
        )
        kinds = items_of(declared.result) if isinstance(declared.result, types.BaseTuple) else [declared.result]
        for place, kind in enumerate(kinds if declared.result_codes else ()):
            value = builder.extract_value(result, place) if len(kinds) > 1 else result
            where = builder.gep(entry.args[1], [ir.Constant(SLOT, place)])
            value = context.get_value_as_data(builder, kind, value)
            builder.store(value, builder.bitcast(where, value.type.as_pointer()))
        builder.ret(builder.select(status.is_error, ir.Constant(STATUS, 1), ir.Constant(STATUS, 0)))
        return module


def items_of(kind: Any) -> list[types.Type]:
    """The types of the items of a tuple, named or not."""
    return list(kind)


class _Slots:
    """Reads the arguments of a call from the slots that the library's caller has filled."""

    def __init__(self, context: Any, builder: ir.IRBuilder, slots: ir.Value) -> None:
        self._context = context
        self._builder = builder
        self._slots = slots
        self._read = 0

    def read(self, kind: types.Type) -> ir.Value:
        context, builder = self._context, self._builder
        if isinstance(kind, types.BaseTuple):
            return context.make_tuple(builder, kind, [self.read(item) for item in items_of(kind)])
        if isinstance(kind, types.Array):
            return self._array(kind)
        value = self._next(context.get_data_type(kind))
        return context.data_model_manager[kind].from_data(builder, value)

    def _array(self, kind: types.Array) -> ir.Value:
        context, builder = self._context, self._builder
        array = context.make_array(kind)(context, builder)
        array.data = self._next(array.data.type)
        shape = [self._next(SLOT) for _ in range(kind.ndim)]
        itemsize = size = ir.Constant(SLOT, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        strides: list[ir.Value] = []
        for extent in reversed(shape):
            strides.insert(0, size)
            size = builder.mul(size, extent)
        array.itemsize, array.nitems = itemsize, builder.sdiv(size, itemsize)
        array.shape, array.strides = cgutils.pack_array(builder, shape), cgutils.pack_array(builder, strides)
        return array._getvalue()

    def _next(self, kind: ir.Type) -> ir.Value:
        where = self._builder.gep(self._slots, [ir.Constant(SLOT, self._read)])
        self._read += 1
        return self._builder.load(self._builder.bitcast(where, kind.as_pointer()))


class HelperLibrary(JITCodeLibrary):
    """Intermediate code for callers to link: never optimised as a whole or made machine code by itself."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return self._final_module


class KernelLibrary(JITCodeLibrary):
    """The code of one kernel with all its helpers."""

    def optimised(self, found: str, symbol: str) -> llvm.ModuleRef:
        """The optimised module, with the kernel under its symbol."""
        module = self._final_module
        for library in self._linking_libraries:
            module.link_in(library._get_module_for_linking(), preserve=True)
        kernel = module.get_function(found)
        kernel.linkage = "external"  # Other modules call it.
        kernel.name = symbol
        kernel.add_function_attribute("noinline")  # The entry would get a copy.
        self._optimize_final_module()  # type: ignore[no-untyped-call]
        module.verify()
        return module


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


class NumbaCompiler:
    """Gives the decorators of `tsdb.codec.jit` their meaning during a build."""

    def __init__(self, level: Level) -> None:
        self._level = level

    def kernel(self, function: Callable[..., Any], keeps_gil: int) -> Kernel:
        return Kernel(function, keeps_gil)

    def helper(self, function: Callable[..., Any]) -> Helper:
        return Helper(function)

    def intrinsic(self, function: Callable[..., Any]) -> Any:
        return intrinsic(INTRINSICS[function.__name__])

    def has_feature(self, feature: str) -> bool:
        return feature in self._level.features


def kernels_of(module: str) -> list[Kernel]:
    """The kernels that a module defines, by name."""
    things = vars(importlib.import_module(module)).values()
    found = {
        thing.symbol: thing for thing in things if isinstance(thing, Kernel) and thing.py_func.__module__ == module
    }
    return [found[symbol] for symbol in sorted(found)]
