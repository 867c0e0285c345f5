"""Options that name the columns of a file, of every command that reads such files: `@with_columns` declares them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from tsdb.model.import_layout import METRIC_NAME, ColumnNames, label_columns

Unit = Literal["ms", "s", "us", "ns", "iso"]


def column_names(
    *,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="COLUMN[,COLUMN...]",
            help="Columns that are labels, as in host,room; or one with all labels: JSON text, a map or a struct.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="LABEL=COLUMN", help="A label from a column; may be repeated."),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option("--constant", metavar="LABEL=VALUE", help="A label of every sample; may be repeated."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="METRIC", help="The metric of every sample.")] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="Column of times; by default ts_ms.")
    ] = None,
    time_unit: Annotated[
        Unit | None, typer.Option("--time-unit", help="Unit of times given as numbers or text; by default ms.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="COLUMN", help="Column of values; by default value.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="COLUMN",
            help="A column with the values of a metric; may be repeated; instead of --value.",
        ),
    ] = None,
) -> ColumnNames:
    """The names of the options, which its signature declares. Raises BadParameter."""
    if value is not None and metric:
        raise typer.BadParameter("give --value or --metric")
    constants = [_pair("--constant", text) for text in constant or []] + ([(METRIC_NAME, name)] if name else [])
    column, pairs = (None, ()) if labels is None else label_columns(labels)
    pairs += tuple(_pair("--label", text) for text in label or [])
    return ColumnNames(column, pairs, tuple(constants), time, time_unit, value, tuple(metric or []))


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates a command with a keyword `columns`, which are ColumnNames: replaces it by the options above."""
    options = inspect.signature(column_names, eval_str=True).parameters

    @functools.wraps(command)
    def wrapper(*first: Any, **given: Any) -> None:
        command(*first, columns=column_names(**{name: given.pop(name) for name in options}), **given)

    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    place = [one.name for one in parameters].index("columns")
    parameters[place : place + 1] = options.values()
    # Typer reads the signature. The annotations would still contain `columns`.
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {}
    return wrapper


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{option} {text!r} is not NAME=VALUE")
    return name, value
