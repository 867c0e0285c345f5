"""The files of an instant query and of a write: the architecture pages name each once, and state the true counts."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs/architecture"


def _named(page: str, heading: str) -> list[Path]:
    """The files in the first column of the first table below a heading, without a folder in that of the file before."""
    text = (PAGES / page).read_text().partition(f"\n## {heading}\n")[2]
    rows = text.partition("\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    named: list[Path] = []
    for name in re.findall(r"`([\w./]+\.py)`", "\n".join(row.split("|")[1] for row in rows)):
        named.append(Path(name) if "/" in name else named[-1].parent / name)
    return named


def test_the_pages_name_each_file_of_an_instant_query_once_and_count_them() -> None:
    above, below = _named("promql.md", "Files of an instant query"), _named("read-path.md", "The way of a read")
    files = above + below
    assert [str(name) for name in files if not (ROOT / name).is_file()] == []
    assert len(set(files)) == len(files)
    promql, read_path = ((PAGES / page).read_text() for page in ("promql.md", "read-path.md"))
    counts = re.search(r"functions of (\d+) files.*?these (\d+),.*?the\s+(\d+) below", promql, re.DOTALL)
    assert counts is not None
    assert tuple(map(int, counts.groups())) == (len(files), len(above), len(below))
    assert f"These are {len(below)} of the {len(files)} files" in read_path


def test_the_page_names_each_file_of_a_remote_write_once_and_counts_them() -> None:
    text = (PAGES / "write-path.md").read_text().partition("\n**Remote write** at ")[2]
    rows = text.partition("\n|---|---|\n")[2].partition("\n\n")[0]
    # The last row names files again after `then`, because the answer passes them on its way back.
    names = re.findall(r"`([\w./]+\.py)`", rows.partition("; then")[0])
    sources = ["/" + str(path.relative_to(ROOT)) for room in ("ingest", "tsdb") for path in (ROOT / room).rglob("*.py")]
    assert [name for name in names if not any(source.endswith("/" + name) for source in sources)] == []
    assert len(set(names)) == len(names)
    assert f" {len(names)} files." in text.partition("\n")[0]
