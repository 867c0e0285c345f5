"""docs/cli.md is up to date with the commands."""

from __future__ import annotations

from pathlib import Path

from tsdb.cli.reference import render

PAGE = Path(__file__).parents[4] / "docs" / "cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == render(), "docs/cli.md is generated: run `make docs`"


def test_every_command_has_a_line_of_help() -> None:
    sections = render().split("\n## ")[1:]
    assert len(sections) > 15
    for section in sections:
        name, _, text = section.partition("\n")
        assert len(text.split("`\n\n", 1)[1].split("\n")[0]) > 10, name
