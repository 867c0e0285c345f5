"""Options that name the columns of a file: those of `tsdb write`, and with them those of `tsdb spark import`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tsdb.model.import_layout import METRIC_NAME, ColumnNames, label_columns

Unit = Literal["ms", "s", "us", "ns", "iso"]

Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="COLUMN[,COLUMN...]",
        help="Columns that are labels, as in host,room; or one with all labels: JSON text, a map or a struct.",
    ),
]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="LABEL=COLUMN", help="A label from a column; may be repeated."),
]
Constant = Annotated[
    list[str] | None,
    typer.Option("--constant", metavar="LABEL=VALUE", help="A label of every sample; may be repeated."),
]
Name = Annotated[str | None, typer.Option("--name", metavar="METRIC", help="The metric of every sample.")]
Time = Annotated[str | None, typer.Option("--time", metavar="COLUMN", help="Column of times; by default ts_ms.")]
TimeUnit = Annotated[
    Unit | None, typer.Option("--time-unit", help="Unit of times given as numbers or text; by default ms.")
]
Value = Annotated[str | None, typer.Option("--value", metavar="COLUMN", help="Column of values; by default value.")]
Metric = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", metavar="COLUMN", help="A column with the values of a metric; may be repeated; instead of --value."
    ),
]


def column_names(
    *,
    labels: str | None,
    label: list[str] | None,
    constant: list[str] | None,
    name: str | None,
    time: str | None,
    time_unit: str | None,
    value: str | None,
    metric: list[str] | None,
) -> ColumnNames:
    """The names of the options. Raises BadParameter."""
    if value is not None and metric:
        raise typer.BadParameter("give --value or --metric")
    constants = [_pair("--constant", text) for text in constant or []] + ([(METRIC_NAME, name)] if name else [])
    column, pairs = (None, ()) if labels is None else label_columns(labels)
    pairs += tuple(_pair("--label", text) for text in label or [])
    return ColumnNames(column, pairs, tuple(constants), time, time_unit, value, tuple(metric or []))


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{option} {text!r} is not NAME=VALUE")
    return name, value
