"""`tsdb rules`: check rule files, and run their unit tests. tsdb/cli/rules_running.py has what needs a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import EnableFeature, TableOrJson
from tsdb.cli.options.groups import Commands
from tsdb.cli.rules_running import evaluate, features_of, status
from tsdb.cli.terminal.errors import error_text
from tsdb.cli.terminal.output import note, print_json, print_table

if TYPE_CHECKING:
    from tsdb.promql.evaluate.query import QueryOptions
    from tsdb.promql.syntax.features import Features
    from tsdb.rules.files import RuleFile

TEST_COLUMNS = ("file", "tests", "cases", "failures")
COLUMNS = ("file", "groups", "recording", "alerting", "problems")

rules = Commands("Prometheus's rule files: recording and alerting rules.")


@dataclass(slots=True)
class _Checked:
    """rules: None where the file has problems."""

    file: str
    rules: RuleFile | None = None
    problems: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


@rules.command("check")
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Rule files.")],
    enable_feature: EnableFeature = None,
    output: TableOrJson = "table",
) -> None:
    """Check rule files: fields, names, PromQL and templates. Each problem has file, line, column and rule.

    The exit code is 1 if a file has a problem. Rules that write the same series are a warning.
    """
    from tsdb.rules.files import duplicates

    features = features_of(enable_feature)
    checked = [_check(path, features) for path in files]
    same = duplicates([one.rules for one in checked if one.rules is not None])
    if output == "json":
        print_json(
            {
                "files": [_file_json(one) for one in checked],
                "duplicates": [{"name": name, "labels": labels, "rules": count} for name, labels, count in same],
            }
        )
    else:
        print_table(COLUMNS, map(_cells, checked), right=COLUMNS[1:])
    for one in checked:
        for text in one.texts:
            note(text)
    for name, labels, count in same:
        note(f"warning: {count} rules write {name} with the labels {labels}: their samples replace one another")
    if any(one.problems for one in checked):
        raise typer.Exit(1)


@rules.command("test")
def run_tests(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of unit tests.")],
    enable_feature: EnableFeature = None,
    output: TableOrJson = "table",
) -> None:
    """Run unit tests of rules: the files of `promtool test rules`, with the same outcomes.

    The rules are evaluated as a ruler does it, over the series of each test. The exit code is 1 if a case fails.
    """
    from tsdb.promql.evaluate.query import QueryOptions

    options = QueryOptions(features=features_of(enable_feature))
    done = [_test(path, options) for path in files]
    if output == "json":
        print_json({"files": [one for one, _ in done]})
    else:
        rows = ([one["file"], one["tests"], one["cases"], len(one["failures"])] for one, _ in done)
        print_table(TEST_COLUMNS, rows, right=TEST_COLUMNS[1:])
    for _, texts in done:
        for text in texts:
            note(text)
    if any(texts for _, texts in done):
        raise typer.Exit(1)


rules.command("eval")(evaluate)
rules.command("status")(status)


def _test(path: Path, options: QueryOptions) -> tuple[dict[str, Any], list[str]]:
    """The outcome as JSON, and the texts of its failures."""
    from tsdb.rules.document import DocumentError
    from tsdb.rules.unit_tests.file import load_unit_tests
    from tsdb.rules.unit_tests.run import run_unit_tests

    found: dict[str, Any] = {"file": str(path), "tests": None, "cases": None, "failures": []}
    try:
        tests = load_unit_tests(path)
        found["tests"] = len(tests.tests)
        found["cases"] = sum(len(one.alert_cases) + len(one.expression_cases) for one in tests.tests)
        for pattern in tests.unmatched:
            note(f"warning: {path}: no file matches the pattern {pattern} of rule_files")
        failures = run_unit_tests(tests, options)
    except (OSError, DocumentError) as error:
        texts = [error_text(error)] if isinstance(error, OSError) else error.message.splitlines()
        found["failures"] = [{"test": None, "line": None, "text": text} for text in texts]
        return found, texts
    found["failures"] = [{"test": one.test, "line": one.place.line, "text": one.text} for one in failures]
    names = [f' test "{one.test}",' if one.test else "" for one in failures]
    return found, [f"{path}: {one.place}:{name} {one.text}" for one, name in zip(failures, names, strict=True)]


def _check(path: Path, features: Features) -> _Checked:
    from tsdb.rules.document import DocumentError
    from tsdb.rules.files import load_rules

    found = _Checked(str(path))
    try:
        found.rules = load_rules(path, features=features)
    except OSError as error:
        found.texts = [error_text(error)]
        found.problems = [{"line": None, "column": None, "text": error.strerror or str(error)}]
    except DocumentError as error:
        found.texts = error.message.splitlines()
        found.problems = [
            {
                "line": problem.place.line if problem.place else None,
                "column": problem.place.column if problem.place else None,
                "text": problem.text,
            }
            for problem in error.problems
        ]
    return found


def _counts(found: RuleFile) -> tuple[int, int, int]:
    from tsdb.rules.files import RecordingRule

    recording = sum(isinstance(rule, RecordingRule) for group in found.groups for rule in group.rules)
    return len(found.groups), recording, found.rules - recording


def _cells(one: _Checked) -> tuple[object, ...]:
    counts = (None, None, None) if one.rules is None else _counts(one.rules)
    return one.file, *counts, len(one.problems)


def _file_json(one: _Checked) -> dict[str, Any]:
    counts = (None, None, None) if one.rules is None else _counts(one.rules)
    return {"file": one.file, **dict(zip(COLUMNS[1:4], counts, strict=True)), "problems": one.problems}
