"""Signatures: translates annotations of a kernel to numba's types and to the codes of the library's caller (caller.h).

An array is contiguous and has one dimension, unless its annotation is `Array2` or `Array3`.
"""

from __future__ import annotations

import types as python
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from numba.core import types

# numba's type and the code of each scalar type.
SCALARS: dict[Any, tuple[types.Type, str]] = {
    int: (types.int64, "l"),
    float: (types.float64, "f"),
    bool: (types.boolean, "b"),
    np.uint32: (types.uint32, "u"),
    np.uint64: (types.uint64, "L"),
}
# numba's type by the type code of elements, as in the module `struct`.
ELEMENTS: dict[Any, tuple[types.Type, str]] = {
    np.int64: (types.int64, "q"),
    np.uint64: (types.uint64, "Q"),
    np.float64: (types.float64, "d"),
    np.int32: (types.int32, "i"),
    np.uint32: (types.uint32, "I"),
    np.uint16: (types.uint16, "H"),
    np.uint8: (types.uint8, "B"),
    np.bool_: (types.boolean, "?"),
}


@dataclass(frozen=True, slots=True)
class Signature:
    """Types of the arguments and the result of a kernel. codes, result_codes: as in caller.h."""

    arguments: tuple[types.Type, ...]
    result: types.Type
    codes: str
    result_codes: str


def signature_of(function: Callable[..., Any]) -> Signature:
    """Raises TypeError if an annotation is missing or has no code."""
    hints = get_type_hints(function, include_extras=True)
    code = function.__code__
    arguments = []
    for name in (*code.co_varnames[: code.co_argcount], "return"):
        try:
            arguments.append(_result(hints[name]) if name == "return" else _argument(hints[name]))
        except (KeyError, TypeError) as error:
            where = f"{function.__module__}.{function.__qualname__}"
            raise TypeError(f"{where}: the annotation of {name!r} names no type of a kernel: {error}") from error
    *taken, (result, result_codes) = arguments
    return Signature(tuple(kind for kind, _ in taken), result, "".join(code for _, code in taken), result_codes)


def scalar_types(function: Callable[..., Any]) -> list[types.Type | None]:
    """The types of the scalars that the annotations of a helper name; None for any other annotation."""
    code = function.__code__
    found = []
    for name in code.co_varnames[: code.co_argcount]:
        annotation = str(function.__annotations__.get(name, "")).removeprefix("np.")
        found.append(next((kind for scalar, (kind, _) in SCALARS.items() if scalar.__name__ == annotation), None))
    return found


def _result(hint: Any) -> tuple[types.Type, str]:
    if hint is python.NoneType:
        return types.none, ""
    if get_origin(hint) is tuple:
        items = [SCALARS[item] for item in get_args(hint)]
        return types.BaseTuple.from_types([kind for kind, _ in items]), "".join(code for _, code in items)
    return SCALARS[hint]


def _argument(hint: Any) -> tuple[types.Type, str]:
    if isinstance(hint, type) and hasattr(hint, "_fields"):
        hints = get_type_hints(hint, include_extras=True)
        items = [_argument(hints[name]) for name in hint._fields]
        return types.BaseTuple.from_types([kind for kind, _ in items], hint), _joined(items)
    dimensions, counts = 1, []
    if get_origin(hint) is Annotated:
        hint, dimensions, *counts = get_args(hint)
    if get_origin(hint) is tuple:
        # An annotation (dimensions, count) is of a tuple of like arrays.
        array, _ = get_args(hint)
        items = [_argument(Annotated[array, dimensions])] * counts[0]
        return types.BaseTuple.from_types([kind for kind, _ in items]), _joined(items)
    if get_origin(hint) is np.ndarray:
        _, dtype = get_args(hint)
        element, code = ELEMENTS[get_args(dtype)[0]]
        return types.Array(element, dimensions, "C"), f"{dimensions}{code}"
    return SCALARS[hint]


def _joined(items: list[tuple[types.Type, str]]) -> str:
    return f"({''.join(code for _, code in items)})"
