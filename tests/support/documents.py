"""Code blocks of a Markdown page, by section, as a reader would run them: one after the other in one shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADING = re.compile(r"^## (.+)$")
_FENCE = re.compile(r"^```(\w*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: the section (## heading) it stands in, its language, its text and first line number."""

    section: str
    language: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block, in order."""
    section, first = "", 0
    language: str | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if language is None:
            heading = _HEADING.match(line)
            section = heading[1] if heading else section
            if fence:
                language, lines, first = fence[1], [], number + 1
        elif fence:
            yield Block(section, language, "\n".join(lines), first)
            language = None
        else:
            lines.append(line)
    assert language is None, f"{page.name}: block from line {first} on never ends"


def shell_script(section: list[Block]) -> str:
    """One bash script of a section's sh and python blocks; the first command that fails ends it and is shown."""
    parts = ["set -euo pipefail"]
    for block in section:
        parts.append(f"echo '--- line {block.line}' >&2")
        if block.language == "sh":
            parts.append(block.text)
        else:
            parts.append(f".venv/bin/python - <<'END_OF_PYTHON'\n{block.text}\nEND_OF_PYTHON")
    return "\n".join(parts) + "\n"
