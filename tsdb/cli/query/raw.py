"""`tsdb query --raw`: the samples of series, as they are or by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import typer

from tsdb.cli.options.arguments import Milliseconds, TimeRange
from tsdb.cli.options.connection import Connection
from tsdb.cli.query.result_output import OutputTarget, print_sample_table, write_result
from tsdb.cli.terminal.output import message_dict, print_warnings
from tsdb.client import Client, ReadOptions, SelectResult

Aggregation = Literal["last", "avg", "min", "max", "sum", "count"]
Encoding = Literal["raw", "columns"]


@dataclass(frozen=True, slots=True)
class RawForm:
    """The form of the samples: all samples, the newest `last_n`, or one for each step."""

    step: Milliseconds | None
    agg: Aggregation | None
    last_n: int
    downsampled: bool
    encoding: Encoding

    def check(self) -> None:
        """Raises BadParameter for options that exclude each other."""
        if (self.step is None) != (self.agg is None):
            raise typer.BadParameter("--step and --agg go together")
        if self.downsampled and self.step is None:
            raise typer.BadParameter("--downsampled goes with --step and --agg")
        if self.last_n and self.step is not None:
            raise typer.BadParameter("give --last-n or --step, not both: a step is one sample already")
        if self.encoding == "columns" and (self.last_n or self.step is not None):
            raise typer.BadParameter("--encoding columns goes without --step and --last-n: leave it out")

    def select(self, client: Client, selector: str, span: TimeRange, options: ReadOptions) -> SelectResult:
        return client.select(
            selector,
            span.start_ms,
            span.end_ms,
            step_ms=self.step.ms if self.step else 0,
            agg=self.agg,
            last_n=self.last_n,
            downsampled=self.downsampled,
            encoding=self.encoding,
            options=options,
        )


def print_samples(
    connection: Connection, selector: str, span: TimeRange, form: RawForm, options: ReadOptions, target: OutputTarget
) -> None:
    """Read the samples and print them."""
    with connection.open() as client:
        result = form.select(client, selector, span, options)
    print_warnings(result.warnings)
    if target.form == "table":
        print_sample_table(result, span, target.rows_max)
        return
    rest = {"samples": result.samples, "partitions": [message_dict(state) for state in result.partitions]}
    write_result(result, rest, target)
