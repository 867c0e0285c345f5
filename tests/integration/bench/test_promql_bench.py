"""`bench promql` and `bench promql_generated` run: both servers get the same samples, and the table has a row for each
way. Those of `bench promql` answer alike."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.promql.promql_comparison import check_equal
from bench.promql.promql_questions import QUESTIONS
from support.senders.prometheus import binary

WITHIN_S = 300.0
END_MS = 1_700_000_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "flow", [(), pytest.param(("--flow", "2000"), marks=pytest.mark.soak)], ids=["alone", "with a flow"]
)
def test_a_quick_run_measures_both_servers(flow: tuple[str, ...]) -> None:
    options = ["--quick", "--series", "100", "--question", "sum by rate", "--prometheus", binary("prometheus"), *flow]
    command = [sys.executable, "-m", "bench", "promql", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    *table, last = done.stdout.splitlines()
    cells = json.loads(last)["cells"]
    assert [cell["way"] for cell in cells] == ["cold", "warm", "8 clients"]
    assert all(cell[name]["count"] >= 10 for cell in cells for name in ("standalone", "prometheus"))
    assert [line.split("|")[1].strip() for line in table[2:]] == ["sum by rate"] * 3


@pytest.mark.slow
def test_generated_queries_are_answered_by_both_servers() -> None:
    options = ["--quick", "--queries", "50", "--prometheus", binary("prometheus")]
    command = [sys.executable, "-m", "bench", "promql_generated", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    *table, last = done.stdout.splitlines()
    cells = json.loads(last)["cells"]
    assert [cell["way"] for cell in cells] == ["first", "warm", "8 clients"]
    assert all(cell[name]["count"] == 50 for cell in cells for name in ("standalone", "prometheus"))
    assert [line.split("|")[1].strip() for line in table[2:]] == ["first", "warm", "8 clients"]


def test_a_further_matcher_stands_in_each_selector() -> None:
    for question in QUESTIONS:
        assert "%24" not in question.path(END_MS, 0)
        assert "cold%21%3D" in question.path(END_MS, 0, 'cold!="1"'), question.name


@pytest.mark.parametrize(
    "points", [[[1, "2"]], [[1, "1.00001"], [2, "1"]], [[1, "1"], [3, "1"]]], ids=["short", "value", "time"]
)
def test_answers_that_differ_are_found(points: list[list[object]]) -> None:
    expected = _matrix([[1, "1"], [2, "1"]])
    check_equal(expected, expected, "same")
    with pytest.raises(AssertionError, match="place"):
        check_equal(_matrix(points), expected, "place")


def _matrix(points: list[list[object]]) -> bytes:
    return json.dumps({"data": {"result": [{"metric": {"job": "bench"}, "values": points}]}}).encode()
