"""Prints the table of bench/promql: both targets side by side, and the ratio of their p50."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

RATIO = "ratio of p50"


def table(cells: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Lines of the cells, in Markdown. names: the targets; the ratio is that of the second to the first."""
    columns = [f"{name}, {figure}" for name in names for figure in ("p50", "p99", "CPU ms")]
    heads = ["query", "way", *columns, *([RATIO] if len(names) > 1 else []), "reach"]
    return markdown(heads, [_row(cell, names) for cell in cells])


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of a table with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [heads, ["-" * width for width in widths], *rows]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def _row(cell: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    figures = [number(cell[name][figure]) for name in names for figure in ("p50", "p99", "cpu_ms")]
    ratios = [f"{ratio(cell, names):.2f}"] if len(names) > 1 else []
    reach = "-" if cell["reach_ms"] is None else f"{cell['reach_ms']:g}"
    return [str(cell["question"]), str(cell["way"]), *figures, *ratios, reach]


def ratio(cell: Mapping[str, Any], names: Sequence[str]) -> float:
    """How many times the first target's p50 the second one's is."""
    return float(cell[names[1]]["p50"]) / float(cell[names[0]]["p50"])


def number(value: float) -> str:
    """A time in ms, with decimals where they matter."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
