"""A sparkline shows the course, gaps included, whatever the values."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.cli.query.result_output import sparkline

MAX = float(np.finfo(np.float64).max)


def spark(values: list[float], width: int = 4) -> str:
    return sparkline(np.arange(len(values)), np.array(values), 0, len(values), width)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.0, 1.0, 2.0, 3.0], "▁▃▆█"),
        ([3.0, 3.0, 3.0, 3.0], "▅▅▅▅"),
        ([1.0, float("nan"), float("inf"), 2.0], "▁  █"),
        ([float("nan")] * 4, "    "),
        ([MAX, -MAX, MAX, 0.0], "█▁█▅"),
        ([0.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0, 8.0], "▁▃▆█"),
    ],
)
def test_bars_follow_the_means(values: list[float], shown: str) -> None:
    assert spark(values) == shown


def test_a_gap_in_time_is_a_gap_in_the_line() -> None:
    assert sparkline(np.array([0, 90]), np.array([1.0, 2.0]), 0, 100, 10) == "▁        █"


def test_no_samples_are_a_blank_line() -> None:
    assert sparkline(np.empty(0, np.int64), np.empty(0), 5, 5, 3) == "   "
