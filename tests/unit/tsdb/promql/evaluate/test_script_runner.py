"""The runner of test scripts counts each evaluation once, as passed or failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promql.runner import Outcome, State, run_script, table

LOADED = "load 1m\n  x{a='1'} 0+1x9\n  x{a='2'} 5 _ stale\n  h {{count:1}}\n  h{a='1'} 1\n\n"


def outcomes(folder: Path, text: str, name: str = "some.test") -> list[Outcome]:
    path = folder / name
    path.write_text(LOADED + text)
    return list(run_script(path))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("eval instant at 1m x\n  x{a='1'} 1\n  x{a='2'} 5\n", State.PASSED),
        ("eval instant at 1m sum(x)\n  {} 6\n", State.PASSED),
        ("eval instant at 2m x\n  x{a='1'} 2\n  x{a='2'} 5\n", State.FAILED),
        ("eval instant at 1m 1 + 1\n  2\n", State.PASSED),
        ("eval instant at 1m 1 + 1\n  3\n", State.FAILED),
        ("eval instant at 1m 'a'\n  expect string 'b'\n".replace("'", '"'), State.FAILED),
        ("eval range from 0 to 2m step 1m x{a='2'}\n  x{a='2'} 5 5\n", State.PASSED),
        ("eval range from 0 to 2m step 1m x{a='2'}\n  x{a='2'} 5 _ 5\n", State.FAILED),
        ("eval instant at 1m x[1m]\n  expect range vector from 1m to 1m step 1m\n  x{a='1'} 1\n", State.PASSED),
        ("eval instant at 1m x + on () x\n  expect fail\n", State.PASSED),
        ("eval instant at 1m x + on () x\n", State.FAILED),
        ("eval instant at 1m x\n  expect fail\n", State.FAILED),
        ("eval instant at 1m x +\n  expect fail regex: parse error\n", State.PASSED),
        ("clear\neval instant at 1m x\n", State.PASSED),
        ("eval instant at 1m h{a!='1'}\n  h {{count:1}}\n", State.PASSED),
        ("eval instant at 1m h{a!='1'}\n  h {{count:2}}\n", State.FAILED),
        ("load 1m\n  x@st -1s\n  x 0\n\neval instant at 0 start_timestamp(x{a=''})\n  {} -1\n", State.PASSED),
    ],
)
def test_states(tmp_path: Path, text: str, state: State) -> None:
    (outcome,) = outcomes(tmp_path, text)
    assert outcome.state is state, outcome


def test_a_failure_names_its_line_and_both_results(tmp_path: Path) -> None:
    (outcome,) = outcomes(tmp_path, "eval instant at 1m x{a='1'}\n  x{a='1'} 2\n")
    assert str(outcome).split("\n") == [
        "some.test:7: x{a='1'}",
        "    expected 1 series",
        '         x{a="1"} 2@0',
        "     got 1 series",
        '         x{a="1"} 1@0',
        "    at 60000 ms: x{a='1'}",
    ]


def test_table_counts_by_file(tmp_path: Path) -> None:
    found = [
        *outcomes(tmp_path, "eval instant at 1m 1\n  1\n\neval instant at 1m 1\n  2\n"),
        *outcomes(tmp_path, "eval instant at 1m 1\n  2\n", "other.test"),
    ]
    assert [line.split() for line in table(found).split("\n")] == [
        ["file", "passed", "failed"],
        ["some.test", "1", "1"],
        ["other.test", "0", "1"],
        ["all", "1", "2"],
    ]
