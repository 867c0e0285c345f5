"""Options made of settings: one option for each field of a settings class, except secrets.

The settings of history, for commands that need only history.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import typer

from tsdb.config import CommonSettings, Flag, ProcessSettings, WorkerSettings, flags, load
from tsdb.model.errors import InvalidRequest, Unavailable

Settings = TypeVar("Settings", bound=ProcessSettings)

CHOICES_CHARS_MAX = 20  # Longer lists of choices are in the help text alone.

HISTORY_SETTINGS = (
    *("config", "history", "history_write_timeout_s", "history_read_timeout_s", "history_inflight_bytes_max"),
    *(name for name in CommonSettings.model_fields if name.startswith("cassandra_")),
)


def with_settings(
    role: type[Settings], *, only: Iterable[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a command whose first parameter is `settings`: replaces this parameter by the options of the role.

    only: names of the settings to offer. A wrong setting is a misuse: exit code 2.

    """
    kept = [flag for flag in flags(role) if only is None or flag.field in set(only)]
    options = [_parameter(flag) for flag in kept]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            settings = _load(role, {flag.field: given.pop(flag.field) for flag in kept})
            try:
                command(settings, **given)
            except Unavailable:
                if not isinstance(settings, WorkerSettings):
                    raise
                # Imported here: it loads the clients of the logs, which the command has loaded then.
                from tsdb.log.open import naming_log

                with naming_log(settings.log):
                    raise

        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        # Typer reads the signature. The annotations would still contain `settings`.
        wrapper.__signature__ = inspect.Signature([*options, *keywords])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {}
        return wrapper

    return decorate


def _load(role: type[Settings], given: dict[str, Any]) -> Settings:
    try:
        return load(role, given)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None


def _parameter(flag: Flag) -> inspect.Parameter:
    kind = bool if flag.is_bool else str
    name = f"--{flag.name}/--no-{flag.name}" if flag.is_bool else f"--{flag.name}"
    choices = f" One of: {', '.join(choice or '(empty)' for choice in flag.choices)}." if flag.choices else ""
    default = f" [default: {flag.default}]" if flag.default else ""
    words = "|".join(filter(None, flag.choices))
    metavar = None if flag.is_bool else words if 0 < len(words) <= CHOICES_CHARS_MAX else flag.kind
    option = typer.Option(name, help=flag.help + choices + default, show_default=False, metavar=metavar)
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]  # made at run time
    return inspect.Parameter(flag.field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


class ToolSettings(CommonSettings):
    """Settings of commands that need history only, without a log."""

    log: str = ""
