"""Describes settings for output: the flags of a role, and the effective values with secrets masked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from tsdb.config.common import ProcessSettings
from tsdb.model.secrets import MASK

_UNITS = {"s": "SECONDS", "ms": "MILLISECONDS", "bytes": "BYTES", "days": "DAYS"}


@dataclass(frozen=True, slots=True)
class Flag:
    """A setting as a flag. name: without the dashes. default: the default as text; None for a required setting.
    choices: empty for any. kind: the placeholder of its value on help pages.
    """

    name: str
    field: str
    help: str
    default: str | None
    choices: tuple[str, ...]
    is_bool: bool
    kind: str


@dataclass(frozen=True, slots=True)
class Described:
    """A setting with its value as text. default: None when it is required."""

    name: str
    value: str
    default: str | None
    help: str


def flags(role: type[ProcessSettings]) -> tuple[Flag, ...]:
    """The flags of a role in the order of its fields, without secrets. `load` accepts their values as text."""
    return tuple(_flag(name, field) for name, field in role.model_fields.items() if not is_secret(role, name))


def effective(settings: ProcessSettings) -> dict[str, Any]:
    """All settings as plain JSON values with secrets masked, for `tsdb config show` and the log at level debug."""
    return {name: _plain(getattr(settings, name)) for name in type(settings).model_fields}


def changed(settings: ProcessSettings) -> dict[str, Any]:
    """The settings that differ from their defaults, secrets masked, for the log line at start: a start is read by
    people, and all settings are 3,000 characters."""
    fields = type(settings).model_fields
    return {
        name: value
        for name, value in effective(settings).items()
        if fields[name].is_required() or value != _plain(fields[name].default)
    }


def described(settings: ProcessSettings) -> tuple[Described, ...]:
    """All settings with their values, secrets masked, in the order of the fields."""
    values = effective(settings)
    return tuple(
        Described(name, _text(values[name]), default_text(field), field.description or "")
        for name, field in type(settings).model_fields.items()
    )


def is_secret(role: type[ProcessSettings], name: str) -> bool:
    """Whether a setting is a secret."""
    field = role.model_fields.get(name)
    return field is not None and SecretStr in (field.annotation, *get_args(field.annotation))


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The legal values of an enumerated setting; empty for others."""
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def legal_range(field: FieldInfo) -> str:
    """Legal values as text, such as "1 to 64"; empty when the type has no further limits."""
    if choices(field):
        return ", ".join(choice or '""' for choice in choices(field))
    low = next((f"above {bound.gt}" for bound in field.metadata if isinstance(bound, Gt)), "")
    low = next((f"{bound.ge}" for bound in field.metadata if isinstance(bound, Ge)), low)
    high = next((f"below {bound.lt}" for bound in field.metadata if isinstance(bound, Lt)), "")
    high = next((f"{bound.le}" for bound in field.metadata if isinstance(bound, Le)), high)
    return " to ".join(part for part in (low, high) if part)


def default_text(field: FieldInfo) -> str | None:
    """The default in the form of a flag's value; None for a required setting."""
    if field.is_required():
        return None
    return _text(_plain(field.default))


def _flag(name: str, field: FieldInfo) -> Flag:
    return Flag(
        name.replace("_", "-"),
        name,
        field.description or "",
        default_text(field),
        choices(field),
        field.annotation is bool,
        _kind(name, field),
    )


def _kind(name: str, field: FieldInfo) -> str:
    """The type of a setting in words, by its annotation and by the unit in its name."""
    kinds = {kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)}
    if kinds & {int, float}:
        return next((unit for part, unit in _UNITS.items() if f"_{part}_" in f"{name}_"), "NUMBER")
    if Path in kinds:
        return "PATH"
    return "HOST:PORT" if name in ("grpc", "http") else "TEXT"


def _text(plain: Any) -> str:
    if isinstance(plain, list):
        return ",".join(map(str, plain))
    if isinstance(plain, bool):
        return str(plain).lower()
    return "" if plain is None else str(plain)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
