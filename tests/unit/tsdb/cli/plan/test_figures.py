"""The figures of `tsdb plan` are those of docs/benchmarks.md."""

from __future__ import annotations

import re

import pytest

from support.deploy_files import ROOT
from tsdb.cli.plan.figures import Figure, figures

TEXT = (ROOT / "docs/benchmarks.md").read_text()
SECTIONS = {
    name: " ".join(text.split()) for name, text in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", TEXT, re.MULTILINE)
}


@pytest.mark.parametrize("name", figures())
def test_a_figure_is_on_the_page_in_the_line_that_it_names(name: str) -> None:
    figure = figures()[name]
    assert figure.line.count("{}") == 1
    assert figure.line.format(figure.shown) in SECTIONS[figure.section], f"{name} is not in ## {figure.section}"


def test_a_changed_page_is_noticed() -> None:
    figure = figures()["head_bytes"]
    assert figure.line.format("6.5") not in SECTIONS[figure.section]


def test_a_value_is_the_number_of_the_page_in_its_unit() -> None:
    assert Figure("Write", "{}", "1,024", 2.0, "bytes").value == 2048.0
    assert figures()["loader_cpu_s"].value == pytest.approx(235e-6 / 1200)
