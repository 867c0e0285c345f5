"""The pages of the parallel consumer: their code runs, their settings exist, their links lead somewhere."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import tsdb.parallel_consumer as library
from tsdb.parallel_consumer import ConsumerMetrics, Control, ErrorPolicy, Options
from tsdb.parallel_consumer.registry import RegistryMetrics, RegistryOptions

PAGES = Path(__file__).parents[4] / "docs" / "parallel-consumer"
NEEDS_A_BROKER = "bootstrap.servers"


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in sorted(PAGES.glob("*.md")):
        for code in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL):
            found.append((page.name, code))
    return found


@pytest.mark.parametrize(("page", "code"), [one for one in blocks("python") if NEEDS_A_BROKER not in one[1]])
def test_the_code_of_the_pages_runs(page: str, code: str) -> None:
    exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize(("page", "code"), [*blocks("python"), *blocks("py")])
def test_the_code_of_the_pages_is_python(page: str, code: str) -> None:
    compile(code, page, "exec")  # Code of other libraries too, which does not run here.


def test_slots_are_computed_and_testing_is_shown() -> None:
    assert {page for page, code in blocks("python") if NEEDS_A_BROKER not in code} >= {"tuning.md", "testing.md"}


def test_the_common_case_takes_ten_lines() -> None:
    ((_, code),) = [one for one in blocks("python") if one[0] == "README.md"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_the_settings_of_the_page_are_all_there_are() -> None:
    ((_, text),) = blocks("toml")
    table = tomllib.loads(text)
    Control.of(table)
    assert set(table) == {field.name for field in fields(Control)} - {"skip_blocked"}


def test_options_metrics_and_names_of_the_pages_exist() -> None:
    text = "".join(page.read_text() for page in [*PAGES.glob("*.md"), *PAGES.parent.glob("*/parallel-consumer.md")])
    registry = CollectorRegistry()
    ConsumerMetrics(registry, "")
    RegistryMetrics(registry, "registry_")
    metrics = {sample.name for metric in registry.collect() for sample in metric.samples}
    settings = {field.name for kind in (Options, Control, ErrorPolicy, RegistryOptions) for field in fields(kind)}
    for name in re.findall(r"`(\w+_(?:max|s|records|quota|total))[`{]", text):
        of_the_loader = name.startswith("tsdb_") and f"`{name}`" in (PAGES.parent / "metrics.md").read_text()
        assert of_the_loader or name in settings | metrics, name
    for name in re.findall(r"`(\w+Executor|\w+Lane|Deferral\w+|WorkerDied|BatchSize|Context)\(?", text):
        assert hasattr(library, name), name


def test_modules_of_the_architecture_exist() -> None:
    text = (PAGES.parent / "architecture" / "parallel-consumer.md").read_text()
    (table,) = re.findall(r"\| module \| holds \|\n(.*?)\n\n", text, re.DOTALL)
    folder = Path(library.__file__).parent
    named = re.findall(r"`([\w/]+(?:\.py|/))`", table)
    assert [name for name in named if not (folder / name).exists()] == []
    unnamed = {"clock.py", "errors.py", "options.py", "metrics.py", "record.py"}
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*.py") if file.name != "__init__.py"}
    of_folders = {name for name in names if name.split("/")[0] + "/" in named}
    assert sorted(names - unnamed - of_folders - set(named)) == []


def test_links_lead_to_pages() -> None:
    for page in [*PAGES.glob("*.md"), *PAGES.parent.glob("*/parallel-consumer.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
