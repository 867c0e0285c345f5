"""The index of formats names every document of the folder, and the code cites documents that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FORMATS = ROOT / "docs/formats"


def test_the_index_lists_every_format_once() -> None:
    listed = re.findall(r"^\| \[\S+\]\((\S+)\)", (FORMATS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in FORMATS.glob("*.md") if path.name != "README.md")


def test_links_between_formats_lead_somewhere() -> None:
    for document in FORMATS.glob("*.md"):
        for link in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"


def test_code_cites_format_documents_that_exist() -> None:
    sources = [
        *ROOT.glob("tsdb/**/*.py"),
        *ROOT.glob("ingest/**/*.py"),
        *ROOT.glob("chunker/**/*.py"),
        *ROOT.glob("proto/**/*.proto"),
    ]
    cited = {name for path in sources for name in re.findall(r"docs/formats/([\w-]+\.md)", path.read_text())}
    assert {"log-record.md", "series-record.md"} <= cited
    assert not [name for name in cited if not (FORMATS / name).exists()]
