"""`tsdb query` prints the value of a PromQL expression.

Computes the times of a PromQL query from its options.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer

from tsdb.cli.options.arguments import DEFAULT_RANGE_MS, Milliseconds, TimeRange
from tsdb.cli.options.connection import Connection
from tsdb.cli.query.result_output import (
    OutputTarget,
    print_sample_table,
    print_step_table,
    print_value_table,
    write_result,
)
from tsdb.cli.terminal.errors import error_text, excerpt, fail, one_line, with_option_names
from tsdb.cli.terminal.output import note, value_text
from tsdb.client import Client, InvalidRequest, QueryResult, ReadOptions

STEPS_WANTED = 240
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
PLAIN_STEPS_MS = [count * unit for unit in (SECOND_MS, MINUTE_MS, HOUR_MS) for count in (1, 2, 5, 10, 15, 30)]


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


@dataclass(frozen=True, slots=True)
class Steps:
    """The times start_ms, start_ms + step_ms, ... up to and including end_ms. step_ms is 0 for an instant query."""

    start_ms: int
    end_ms: int
    step_ms: int

    @property
    def is_instant(self) -> bool:
        return self.step_ms == 0


def steps_of(
    at: Milliseconds | None,
    start: Milliseconds | None,
    end: Milliseconds | None,
    last: Milliseconds | None,
    step: Milliseconds | None,
) -> Steps:
    """The times that the options mean. Without a time the instant is now; the default range is the hour up to now."""
    now_ms = time.time_ns() // 1_000_000
    if start is None and end is None and last is None and step is None:
        at_ms = now_ms if at is None else at.ms
        return Steps(at_ms, at_ms, 0)
    if at is not None:
        raise typer.BadParameter("give --at for one time, or --start, --end, --last and --step for a range")
    if last is not None and (start is not None or end is not None):
        raise typer.BadParameter("give --last, or --start and --end")
    end_ms = now_ms if end is None else end.ms
    length_ms = DEFAULT_RANGE_MS if last is None else last.ms
    start_ms = end_ms - length_ms if start is None else start.ms
    if start_ms > end_ms:
        raise typer.BadParameter(f"--start {start_ms} is after --end {end_ms}")
    return Steps(start_ms, end_ms, plain_step_ms(end_ms - start_ms) if step is None else step.ms)


def plain_step_ms(range_ms: int) -> int:
    """The shortest plain step that makes at most about STEPS_WANTED values of the range."""
    wanted_ms = -(-range_ms // STEPS_WANTED)
    days_ms = -(-wanted_ms // DAY_MS) * DAY_MS
    return next((step_ms for step_ms in PLAIN_STEPS_MS if step_ms >= wanted_ms), days_ms)
