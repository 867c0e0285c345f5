"""Links of the documents lead to files, and the files and folders that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = (
    "bench",
    "chunker",
    "deploy",
    "examples",
    "ingest",
    "kernel_build",
    "scripts",
    "spark_backfill",
    "stack",
    "tests",
    "tsdb",
)
SOURCES = [file.relative_to(ROOT).as_posix() for part in CODE for file in (ROOT / part).rglob("*.py")]
FILE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.py)`")
FOLDER = re.compile(r"`((?:[\w-]+/)+(?:[\w-]+\.py)?)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_files_that_a_page_names_exist(page: Path) -> None:
    """A name may leave out folders at its beginning."""
    named = set(FILE.findall(page.read_text()))
    assert sorted(name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in SOURCES)) == []


@pytest.mark.parametrize("page", ["docs/folders.md", "docs/README.md"])
def test_folders_of_a_table_exist(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    named = {name for row in rows for name in FOLDER.findall(row)}
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_each_folder_with_code_is_in_the_table_of_folders() -> None:
    rows = [line for line in (ROOT / "docs/folders.md").read_text().splitlines() if line.startswith("|")]
    named = {name for row in rows for name in FOLDER.findall(row)}
    folders = [file.parent for file in [*ROOT.glob("*/__init__.py"), *ROOT.glob("tsdb/*/__init__.py")]]
    with_code = {f"{folder.relative_to(ROOT).as_posix()}/" for folder in folders} - {"tsdb/", "tsdb/v1/"}
    assert sorted(with_code - named) == []


FOLDERS = [
    f"/{folder.relative_to(ROOT).as_posix()}/"
    for part in (*CODE, "docs", "proto")
    for folder in [ROOT / part, *(ROOT / part).rglob("*")]
    if folder.is_dir()
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_folders_that_a_page_names_exist(page: Path) -> None:
    """A name may leave out folders at its beginning. build/ is made by commands."""
    named = {name for name in FOLDER.findall(page.read_text()) if name.endswith("/") and not name.startswith("build/")}
    assert sorted(name for name in named if not any(folder.endswith(f"/{name}") for folder in FOLDERS)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_installs_a_name_that_anybody_may_register(page: Path) -> None:
    """Nothing is published yet: packages come from the checkout or from the file of a wheel."""
    assert re.findall(r"pip install[^\n`]*kafka-tsdb(?!-)", page.read_text()) == []
