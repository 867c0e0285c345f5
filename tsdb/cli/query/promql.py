"""`tsdb query` prints the value of a PromQL expression."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tsdb.cli.options.arguments import Milliseconds, TimeRange
from tsdb.cli.options.connection import Connection
from tsdb.cli.query.excerpt import excerpt
from tsdb.cli.query.formats import write_result
from tsdb.cli.query.steps import Steps
from tsdb.cli.query.tables import print_sample_table, print_step_table, print_value_table
from tsdb.cli.query.target import OutputTarget
from tsdb.cli.terminal.errors import error_text, fail, one_line, with_option_names
from tsdb.cli.terminal.output import note, value_text
from tsdb.client import Client, InvalidRequest, QueryResult, ReadOptions


def print_value(
    connection: Connection,
    expression: str,
    steps: Steps,
    lookback: Milliseconds | None,
    options: ReadOptions,
    target: OutputTarget,
) -> None:
    """Evaluate the expression on the server and print its value, then its warnings and infos."""
    lookback_ms = 0 if lookback is None else lookback.ms
    with connection.open() as client, _place_of_errors(expression):
        result = _evaluate(client, expression, steps, lookback_ms, options)
    if target.form == "table":
        _print_table(result, steps, target.rows_max)
    else:
        _write(result, target)
    for word, texts in (("warning", result.warnings), ("info", result.infos)):
        for text in texts:
            note(f"{word}: {one_line(with_option_names(text.removeprefix(f'PromQL {word}: ')))}")


def _evaluate(client: Client, expression: str, steps: Steps, lookback_ms: int, options: ReadOptions) -> QueryResult:
    if steps.is_instant:
        return client.query(expression, steps.start_ms, lookback_ms=lookback_ms, options=options)
    times = (steps.start_ms, steps.end_ms, steps.step_ms)
    return client.query_range(expression, *times, lookback_ms=lookback_ms, options=options)


@contextmanager
def _place_of_errors(expression: str) -> Iterator[None]:
    """Prints the position in the expression below an error that names one."""
    try:
        yield
    except InvalidRequest as error:
        fail(error_text(error), excerpt(expression, error.message))


def _print_table(result: QueryResult, steps: Steps, rows_max: int) -> None:
    if result.kind == "text":
        print(result.text)
    elif result.kind == "scalar":
        print(value_text(float(result.values[0])))
    elif result.kind == "ranges":
        print_sample_table(result, TimeRange(steps.start_ms, steps.end_ms + 1), rows_max)
    elif steps.is_instant:
        print_value_table(result, rows_max)
    else:
        print_step_table(result, steps.step_ms, rows_max)


def _write(result: QueryResult, target: OutputTarget) -> None:
    if result.kind == "text" and target.form != "json":
        fail("the value is a text, which has no samples: take --output table or json")
    rest = {
        "samples": len(result.values),
        "kind": result.kind,
        "text": result.text if result.kind == "text" else None,
        "warnings": list(result.warnings),
        "infos": list(result.infos),
    }
    write_result(result, rest, target)
