"""`tsdb config show`: the settings that a role would run with."""

from __future__ import annotations

from typing import Any

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import print_json, print_table
from tsdb.config import ROLES, ProcessSettings, effective

config = Commands("Settings.")
show = Commands("Settings in effect, secrets masked.")
config.add_typer(show, name="show")


def _print_settings(settings: ProcessSettings, output: TableOrJson = "table") -> None:
    values = effective(settings)
    if output == "json":
        print_json(values)
    else:
        print_table(("setting", "value"), ((name, _text(value)) for name, value in values.items()))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


for _name, _role in ROLES.items():
    _help = f"Settings that `tsdb {_name}` would run with: flags, TSDB_* variables, the file, defaults."
    show.command(_name, help=_help)(with_settings(_role)(_print_settings))
