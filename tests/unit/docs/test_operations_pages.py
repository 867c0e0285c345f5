"""Pages for operators: commands parse, and metrics, alerts, settings, reasons and sections that they name exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from support.deploy_files import ROOT, alerts
from support.documents import blocks
from tsdb.cli.main import app

NAMES = ("upgrade", "partitions", "zones", "troubleshooting", "security", "faq")
PAGES = [ROOT / f"docs/{name}.md" for name in NAMES]
METRICS = set(re.findall(r"^\| `(tsdb_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
ALERTS = {rule["alert"] for rule in alerts()}
CODE = re.compile(r"`([^`\n]+)`")
PACKAGES = ("tsdb", "ingest", "chunker", "spark_backfill")
SUFFIXES = (".py", ".yaml", ".toml", ".tpl")
SOURCE = "\n".join(
    path.read_text() for part in (*PACKAGES, "deploy") for path in (ROOT / part).rglob("*") if path.suffix in SUFFIXES
)
WORDS = set(re.findall(r"\w+", SOURCE))
by_page = pytest.mark.parametrize("page", PAGES, ids=NAMES)


def command_lines() -> list[tuple[str, str]]:
    """(place, command line) of every `tsdb ...` in a block of shell or, with its arguments, in a text."""
    found = []
    for page in PAGES:
        shown = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
        inline = [text for text in CODE.findall(page.read_text()) if text.startswith("tsdb ") and " --" in text]
        found += [(page.name, line) for line in (*shown, *inline)]
    return found


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_a_command_line_is_one_of_the_command(page: str, line: str) -> None:
    words = shlex.split(line)
    assert words.pop(0) == "tsdb", f"{page}: {line}"
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, f"{page}: no command {name}"
        command = command.commands[name]
    options = [word for word in words if word.startswith("--")]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {option.partition("=")[0] for option in options} <= known, f"{page}: {line}"


@by_page
def test_commands_in_the_text_exist(page: Path) -> None:
    for text in CODE.findall(page.read_text()):
        command: Any = typer.main.get_command(app)
        names = text.split()[1:] if text.startswith("tsdb ") else []
        while names and hasattr(command, "commands"):
            name = names.pop(0)
            assert name in command.commands, f"no command {name} in `{text}`"
            command = command.commands[name]


@by_page
def test_metrics_and_alerts_exist(page: Path) -> None:
    words = [word for text in CODE.findall(page.read_text()) for word in re.findall(r"\w+", text)]
    assert {word for word in words if word.startswith("tsdb_") and not word.startswith("tsdb_p64")} <= METRICS
    named = {text for text in CODE.findall(page.read_text()) if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", text)}
    assert named - {"DoNotSchedule"} <= ALERTS


@by_page
def test_settings_and_reasons_exist(page: Path) -> None:
    named = {text for text in CODE.findall(page.read_text()) if re.fullmatch(r"[a-z]+(?:_[a-z]+)+", text)}
    assert sorted(named - WORDS - METRICS) == []


@by_page
def test_sections_that_a_page_links_to_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        text = (page.parent / target if target else page).read_text()
        anchors = {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
        assert anchor in anchors, f"{target}#{anchor}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_alert_of_troubleshooting_stands_in_one_table_row() -> None:
    """A symptom leads to an alert; most alerts have a row."""
    text = (ROOT / "docs/troubleshooting.md").read_text()
    shown = [name for name in re.findall(r"`([A-Za-z]+)`", text) if name in ALERTS]
    assert sorted(shown) == sorted(set(shown))
    assert len(shown) > len(ALERTS) / 2


def test_the_page_of_documents_links_every_page() -> None:
    text = (ROOT / "docs/README.md").read_text()
    assert [name for name in NAMES if f"]({name}.md)" not in text] == []
