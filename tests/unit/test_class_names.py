"""Names of classes: one public name means one thing in the whole product."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("tsdb", "ingest", "chunker", "spark_backfill", "bench", "stack")
# The parallel consumer is a separate library that imports nothing of the project; these mean the same on both sides.
SAME_IN_THE_LIBRARY = {"Clock", "Position", "SystemClock"}


def public_classes() -> dict[str, list[str]]:
    listed = subprocess.run(["git", "ls-files", "--", *PRODUCT], cwd=ROOT, check=True, capture_output=True, text=True)
    modules = defaultdict[str, list[str]](list)
    for name in listed.stdout.splitlines():
        # `tsdb/v1` is generated. A file that git knows may be gone until its removal is staged.
        if name.endswith(".py") and not name.startswith("tsdb/v1/") and (ROOT / name).exists():
            for statement in ast.parse((ROOT / name).read_text(encoding="utf-8")).body:
                if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                    modules[statement.name].append(name)
    return modules


@pytest.mark.slow
def test_the_name_of_a_public_class_is_unique_in_the_product() -> None:
    twice = {name: modules for name, modules in public_classes().items() if len(modules) > 1}
    for name in SAME_IN_THE_LIBRARY & set(twice):
        if len([module for module in twice[name] if not module.startswith("tsdb/parallel_consumer/")]) == 1:
            del twice[name]
    assert not twice, f"give each class a name that says which one it is: {twice}"
