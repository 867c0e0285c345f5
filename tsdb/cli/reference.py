"""Generates docs/cli.md from the commands: `python -m tsdb.cli.reference > docs/cli.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from tsdb.cli.commands import COMMANDS
from tsdb.cli.coverage import coverage
from tsdb.cli.options.connection import CONNECTION_OPTIONS
from tsdb.config import ROLES, flags
from tsdb.config.load import known_keys

INTRODUCTION = """# Command line

Generated from `tsdb/cli`; do not edit: `python -m tsdb.cli.reference > docs/cli.md`.

Data goes to stdout, everything else to stderr. Exit codes: 0 good, 1 failed, 2 misused. A failure is one line on
stderr, `error: ...`, with a reason that scripts can rely on in parentheses. A misuse is one line that names the help
page to read. Below an error in PromQL or a selector is its place. `tsdb --version` prints the version; `-h` and
`--help` explain every command.

Durations are numbers and units (`500ms`, `30s`, `10m`, `1h30m`, `1.5h`, `2d`, `1w`, `1y` of 365 days; a bare number is
seconds). Times are ISO 8601 (UTC without a zone), ms since the epoch, `-1h` or `now-1h`, `today` or `yesterday` (their
start in UTC, also `today-2h`). Selectors are those of Prometheus: `name{label="value",other=~"re.*"}`, with RE2
expressions that must match the whole value.

Commands that call a server take the options below; they use TLS when any `--tls` option is given, and show the bearer
token of `--token-file` or of the variable `TSDB_TOKEN`. `--timeout` bounds the whole call, its retries included; it is
10s for reads, 60s for `write`.
"""


def render() -> str:
    connection = [param for param in _parameters(coverage) if param.name in CONNECTION_OPTIONS]
    return INTRODUCTION + _table(connection) + "".join(_all_sections())


@dataclass(frozen=True, slots=True)
class _Parameter:
    """An argument or option from the signature of its command."""

    name: str
    hint: Any
    info: OptionInfo | ArgumentInfo
    default: Any

    @property
    def is_setting(self) -> bool:
        # Another option may have a setting's name. Options made of settings have their default in their help.
        return self.name in known_keys() and self.info.show_default is False and self.hint in (str | None, bool | None)

    @property
    def declarations(self) -> list[str]:
        # In an annotation the first declaration stands where the default would be.
        return [str(part) for part in (self.info.default, *(self.info.param_decls or ())) if part is not ...]

    @property
    def value(self) -> str:
        """Placeholder or choices of the value, "" for a flag."""
        if self.info.metavar:
            return self.info.metavar
        kinds = [kind for kind in (get_args(self.hint) or (self.hint,)) if kind is not NoneType]
        if get_origin(self.hint) is Literal or any(isinstance(kind, str) for kind in kinds):
            return " or ".join(f"`{choice}`" for choice in kinds)
        if any(get_origin(kind) is Literal for kind in kinds):
            return " or ".join(f"`{choice}`" for kind in kinds for choice in get_args(kind))
        return "" if kinds == [bool] else _KINDS[kinds[0]]


_KINDS = {str: "TEXT", int: "N", float: "NUMBER", Path: "FILE"}


def _all_sections() -> Iterator[str]:
    for row in COMMANDS:
        part = row.load()
        if isinstance(part, typer.Typer):
            yield from _sections(part, f"tsdb {row.name}")
        else:
            yield _section(part, f"tsdb {row.name}", part.__doc__ or "")


def _sections(part: typer.Typer, path: str) -> Iterator[str]:
    for command in part.registered_commands:
        assert command.callback is not None
        yield _section(command.callback, f"{path} {command.name}", command.help or command.callback.__doc__ or "")
    for group in part.registered_groups:
        assert group.typer_instance is not None
        yield from _sections(group.typer_instance, f"{path} {group.name}")


def _section(callback: Callable[..., Any], path: str, help_text: str) -> str:
    params = _parameters(callback)
    arguments = [param for param in params if isinstance(param.info, ArgumentInfo)]
    options = [param for param in params if isinstance(param.info, OptionInfo)]
    usage = " ".join([path, *(param.value for param in arguments), *(["[OPTIONS]"] if options else [])])
    text = f"\n## {path}\n\n`{usage}`\n\n{inspect.cleandoc(help_text)}\n"
    calls_a_server = {param.name for param in params} >= CONNECTION_OPTIONS
    own = [param for param in options if not param.is_setting]
    if calls_a_server:
        own = [param for param in own if param.name not in CONNECTION_OPTIONS]
        text += "\nCalls a server: takes the options at the top as well.\n"
    return text + _settings([param for param in options if param.is_setting]) + _table([*arguments, *own])


def _parameters(callback: Callable[..., Any]) -> list[_Parameter]:
    given = inspect.signature(callback, eval_str=True).parameters.values()
    return [_parameter(param) for param in given if param.annotation is not typer.Context]


def _parameter(param: inspect.Parameter) -> _Parameter:
    hint, info = get_args(param.annotation)
    return _Parameter(param.name, hint, info, param.default)


def _settings(settings: list[_Parameter]) -> str:
    if not settings:
        return ""
    for name, role in ROLES.items():
        if [param.name for param in settings] == [flag.field for flag in flags(role)]:
            return f"\nEvery setting of `{name}` ([config.md](config.md)) is an option: `log_level` is `--log-level`.\n"
    names = ", ".join(f"`{param.declarations[0]}`" for param in settings)
    return f"\nOf the settings ([config.md](config.md)), these are options: {names}.\n"


def _table(params: list[_Parameter]) -> str:
    if not params:
        return ""
    rows = [f"| {_names(param)} | {_default(param)} | {_meaning(param)} |" for param in params]
    return "\n".join(["", "| option | default | meaning |", "|---|---|---|", *rows, ""])


def _names(param: _Parameter) -> str:
    if isinstance(param.info, ArgumentInfo):
        return f"`{_escaped(param.value)}`"
    names = ", ".join(f"`{name}`" for name in param.declarations)
    return _escaped(f"{names} {param.value}".strip())


def _default(param: _Parameter) -> str:
    if param.default is inspect.Parameter.empty:
        return "required"
    if isinstance(param.default, bool):
        return "on" if param.default else ""
    return "" if param.default is None else f"`{param.default}`"


def _meaning(param: _Parameter) -> str:
    variable = f" Variable: `{param.info.envvar}`." if param.info.envvar else ""
    return _escaped((param.info.help or "") + variable)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
