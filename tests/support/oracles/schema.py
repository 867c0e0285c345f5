"""A JSON Schema validator of the few words that deploy/schemas uses; any other word is an error of the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_WORDS = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "pattern"}
_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def faults(schema: Mapping[str, Any], value: Any, place: str = "") -> Iterator[str]:
    """One line for each part of the value that the schema refuses."""
    unknown = schema.keys() - _WORDS
    assert not unknown, f"the schema has {unknown}"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if "type" in schema and not _is_a(schema["type"], value):
        yield f"{place}: {value!r} is no {schema['type']}"
        return
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{place}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, dict):
        yield from _object_faults(schema, value, place)
    if isinstance(value, list) and "items" in schema:
        for at, item in enumerate(value):
            yield from faults(schema["items"], item, f"{place}[{at}]")


def _object_faults(schema: Mapping[str, Any], value: Mapping[str, Any], place: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    yield from (f"{place}: {name} is missing" for name in schema.get("required", []) if name not in value)
    for name, item in value.items():
        if name in known:
            yield from faults(known[name], item, f"{place}.{name}")
        elif others is False:
            yield f"{place}: {name} is no field of it"
        elif isinstance(others, dict):
            yield from faults(others, item, f"{place}.{name}")


def _is_a(kinds: str | list[str], value: Any) -> bool:
    names = [kinds] if isinstance(kinds, str) else kinds
    return any(isinstance(value, _TYPES[name]) and not (name == "integer" and value is True) for name in names)
