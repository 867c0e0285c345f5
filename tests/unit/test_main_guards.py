"""A module that runs as a program defines everything before it runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("bench", "chunker", "examples", "ingest", "scripts", "spark_backfill", "stack", "tests", "tsdb")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_call_of_main_is_the_last_statement_of_its_module(folder: str) -> None:
    """A function below the call is unknown to `main`, and no check of names finds that."""
    texts = {path: path.read_text() for path in (ROOT / folder).rglob("*.py")}
    programs = {path: ast.parse(text).body for path, text in texts.items() if "__main__" in text}
    early = [
        f"{path.relative_to(ROOT)}:{statement.lineno}"
        for path, body in programs.items()
        for statement in body[:-1]
        if isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)
    ]
    assert early == []
