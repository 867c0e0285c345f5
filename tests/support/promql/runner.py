"""Runner of Prometheus's test scripts: `python -m support.promql.runner [FILE...]` in tests/.

Prints the counts of each file and every evaluation that fails.
"""

from __future__ import annotations

import argparse
import enum
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from support.promql import comparison
from support.promql.comparison import Mismatch
from support.promql.evaluation import Evaluation, Expectation, Times
from support.promql.histograms import HistogramStorage, custom_histograms
from support.promql.reruns import Run, runs
from support.promql.script import Clear, Load, commands
from support.promql.scripts import FOLDER, files
from tsdb.model.errors import InvalidRequest
from tsdb.promql.evaluate.query import EvaluationResult, QueryOptions, instant_query, range_query
from tsdb.promql.evaluate.storage import Storage
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.unit_tests.histograms import histogram_points

# Prometheus runs its scripts with these flags.
OPTIONS = QueryOptions(features=ALL_FEATURES, delays_name_removal=True)
MINUTE_MS = 60_000
ERROR_CHARACTERS = 300  # Most characters of an error's text.

# The value of these depends on start, end and step of a query, so an instant differs from the same time in a range.
_OF_THE_RANGE = re.compile(r"(start|end|range|step)\(\)")


class State(enum.Enum):
    """State of an evaluation. The values are the columns of the table."""

    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """reason: the reason of a failure."""

    file: str
    line: int
    query: str
    state: State
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.query}\n    {self.reason}"


def run_script(path: Path) -> Iterator[Outcome]:
    """The outcome of each evaluation of a script."""
    storage = HistogramStorage()
    for command in commands(path.read_text()):
        match command:
            case Load():
                _load(command, storage)
            case Clear():
                storage.clear()
            case Evaluation():
                state, reason = _outcome(command, storage)
                yield Outcome(path.name, command.line, command.query, state, reason)


def _load(load: Load, storage: HistogramStorage) -> None:
    for series in load.series:
        storage.add(series.labels, series.samples(0, load.step_ms))
        if series.has_histograms:
            storage.add_histograms(series.labels, histogram_points(series, 0, load.step_ms))
            storage.with_hints(series.labels)
        for index, after_ms in enumerate(load.start_times.get(series.labels, ())):
            if after_ms is not None:
                storage.add_start(series.labels, index * load.step_ms, index * load.step_ms + after_ms)
    if load.with_nhcb:
        for labels, points in custom_histograms(load.series, load.step_ms).items():
            storage.add_histograms(labels, points.items())
            storage.with_hints(labels)


def _outcome(evaluation: Evaluation, storage: Storage) -> tuple[State, str]:
    for place, check in _checks(evaluation, storage):
        try:
            check()
        except Mismatch as error:
            return State.FAILED, f"{error}\n    {place}"
        except Exception as error:  # An error of the evaluator fails its evaluation, and the others still run.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            shown = repr(error)[:ERROR_CHARACTERS]
            return State.FAILED, f"raised {shown} in {Path(frame.filename).name}:{frame.lineno}\n    {place}"
    return State.PASSED, ""


def _checks(evaluation: Evaluation, storage: Storage) -> Iterator[tuple[str, Callable[[], None]]]:
    """The queries to run and compare, each with the place that its failure names."""
    times, expected = evaluation.times, evaluation.expected
    if times is not None:
        place = f"from {times.start_ms} to {times.end_ms} step {times.step_ms} ms"
        yield place, partial(_check_range, evaluation, times, storage)
        return
    for run in runs(evaluation.query, evaluation.at_ms):
        yield f"at {run.at_ms} ms: {run.query}", partial(_check_instant, evaluation, run, storage)
        is_vector = expected.samples_at is None and expected.text is None and not expected.of("fail")
        if is_vector and not _OF_THE_RANGE.search(run.query):
            place = f"around {run.at_ms} ms as a range query: {run.query}"
            yield place, partial(_check_inside_range, expected, run, storage)


def _check_range(evaluation: Evaluation, times: Times, storage: Storage) -> None:
    try:
        result = range_query(evaluation.query, storage, times.start_ms, times.end_ms, times.step_ms, OPTIONS)
    except InvalidRequest as error:
        comparison.check_failure(evaluation.expected, error.message)
    else:
        _check_success(evaluation, result)


def _check_instant(evaluation: Evaluation, run: Run, storage: Storage) -> None:
    try:
        result = instant_query(run.query, storage, run.at_ms, OPTIONS)
    except InvalidRequest as error:
        comparison.check_failure(evaluation.expected, error.message)
    else:
        _check_success(evaluation, result)


def _check_success(evaluation: Evaluation, result: EvaluationResult) -> None:
    if evaluation.expected.of("fail"):
        raise Mismatch("an error", repr(result.value))
    comparison.check_annotations(evaluation.expected, result)
    comparison.check_result(evaluation, result)


def _check_inside_range(expected: Expectation, run: Run, storage: Storage) -> None:
    """The instant in the middle of a range query has the same value. The order of a range's series is another one."""
    result = range_query(run.query, storage, run.at_ms - MINUTE_MS, run.at_ms + MINUTE_MS, MINUTE_MS, OPTIONS)
    assert isinstance(result.value, Block)
    rows = comparison.block_rows(result.value, result.times_ms)
    comparison.check_order(rows)
    at = [comparison.Row(row.labels, {0: row.points[run.at_ms]}) for row in rows if run.at_ms in row.points]
    if expected.scalar is not None:
        comparison.check_scalar(expected, at[0].points[0])
    elif not expected.is_ordered:
        comparison.check_vector(expected, at)


def table(outcomes: list[Outcome]) -> str:
    """Counts by file and in all."""
    counts = Counter((outcome.file, outcome.state) for outcome in outcomes)
    names = list(dict.fromkeys(outcome.file for outcome in outcomes))
    lines = [f"{'file':28}" + "".join(f"{state.value:>11}" for state in State)]
    for name in names:
        lines.append(f"{name:28}" + "".join(f"{counts[name, state]:11}" for state in State))
    totals = Counter(outcome.state for outcome in outcomes)
    lines.append(f"{'all':28}" + "".join(f"{totals[state]:11}" for state in State))
    return "\n".join(lines)


def main() -> int:
    """Exit code 1 where an evaluation fails."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m support.promql.runner")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a path, or a name in the scripts' folder")
    arguments = parser.parse_args()
    paths = [path if path.exists() else FOLDER / path for path in arguments.files] or files()
    outcomes = [outcome for path in paths for outcome in run_script(path)]
    for outcome in outcomes:
        if outcome.state is State.FAILED:
            print(outcome, end="\n\n")
    print(table(outcomes))
    return int(any(outcome.state is State.FAILED for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
