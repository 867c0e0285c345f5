"""Commands of test scripts, with old and new expectations."""

from __future__ import annotations

import pytest

from support.promql.evaluation import ANYTHING, Condition, Evaluation, Times
from support.promql.script import Clear, Load, ScriptError, commands
from support.promql.scripts import files


def evaluation(text: str) -> Evaluation:
    (command,) = commands(text)
    assert isinstance(command, Evaluation)
    return command


def test_commands_come_in_order() -> None:
    load, clear, with_nhcb = commands(
        "# A comment.\nload 1m\n  x 1\n\tx 2\n  y 3\n\nclear\nload_with_nhcb 10s53ms\n  z 1\n"
    )
    assert isinstance(load, Load)
    assert isinstance(clear, Clear)
    assert isinstance(with_nhcb, Load)
    assert (load.step_ms, load.with_nhcb) == (60_000, False)
    assert [list(series.samples(0, load.step_ms)) for series in load.series] == [[(0, 2.0)], [(0, 3.0)]]
    assert (with_nhcb.step_ms, with_nhcb.with_nhcb) == (10_053, True)


def test_start_timestamps_are_those_of_their_series() -> None:
    (load,) = commands("load 1m\n  x 1\n  y{a='b'}@st _ -1s -0ms _x2\n  y{a='b'} 1 2\n  @st -1mx2 0+1sx2 1ms\n  z 1\n")
    assert isinstance(load, Load)
    assert len(load.series) == 3
    assert load.start_times == {
        load.series[1].labels: [None, -1000, 0, None, None],
        load.series[2].labels: [-60_000, -60_000, -60_000, 0, 1000, 2000, 1],
    }


def test_instant_and_range() -> None:
    instant = evaluation("eval instant at 1m30s sum(x) + 1\n  {} 2\n")
    assert (instant.line, instant.query, instant.at_ms, instant.times) == (1, "sum(x) + 1", 90_000, None)
    ranged = evaluation("\n\neval range from 0 to 1h step 30s x\n")
    assert (ranged.line, ranged.query, ranged.times) == (3, "x", Times(0, 3_600_000, 30_000))
    assert not ranged.expected.series


@pytest.mark.parametrize(
    ("text", "kind", "condition"),
    [
        ("eval_fail instant at 0 x", "fail", ANYTHING),
        ("eval_fail instant at 0 x\n  expected_fail_message a b", "fail", Condition("a b", False)),
        ("eval_fail instant at 0 x\n  expected_fail_regexp a.b", "fail", Condition("a.b", True)),
        ("eval_warn range from 0 to 1s step 1s x", "warn", ANYTHING),
        ("eval_info instant at 0 x", "info", ANYTHING),
        ("eval_ordered instant at 0 x", "ordered", ANYTHING),
        ("eval instant at 0 x\n  expect fail msg:a b", "fail", Condition("a b", False)),
        ("eval instant at 0 x\n  expect warn msg: a (1:1)", "warn", Condition("a (1:1)", False)),
        ("eval instant at 0 x\n  expect info regex: a.b", "info", Condition("a.b", True)),
        ("eval instant at 0 x\n  expect no_warn", "no_warn", ANYTHING),
        ("eval instant at 0 x\n  expect no_info", "no_info", ANYTHING),
        ("eval instant at 0 x\n  expect ordered", "ordered", ANYTHING),
    ],
)
def test_conditions(text: str, kind: str, condition: Condition) -> None:
    assert evaluation(text).expected.conditions == {kind: [condition]}


def test_conditions_of_one_kind_add_up() -> None:
    text = "eval instant at 0 x\n  expect warn msg: a\n  expect warn msg: b\n  expect no_info\n  x 1"
    expected = evaluation(text).expected
    assert [condition.text for condition in expected.of("warn")] == ["a", "b"]
    assert expected.of("no_info")
    assert not expected.of("info")
    assert len(expected.series) == 1


@pytest.mark.parametrize(("text", "value"), [("5", 5.0), ("-Inf", float("-inf")), ("0x10", 16.0), ("1e3", 1000.0)])
def test_scalar(text: str, value: float) -> None:
    assert evaluation(f"eval instant at 0 x\n  {text}\n").expected.scalar == value


@pytest.mark.parametrize(("text", "value"), [('"a\\tb"', "a\tb"), ("`a\\tb`", "a\\tb"), ('""', "")])
def test_string(text: str, value: str) -> None:
    assert evaluation(f"eval instant at 0 x\n  expect string {text}\n").expected.text == value


def test_range_vector_is_evaluated_at_its_end() -> None:
    found = evaluation("eval instant at 0 x[1m]\n  expect range vector from 10s to 1m step 10s\n  x 1 2\n")
    assert (found.expected.samples_at, found.at_ms) == (Times(10_000, 60_000, 10_000), 60_000)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("clear\nlaod 1m\n", 2),
        ("load\n", 1),
        ("load 1q\n", 1),
        ("load 1m\n  x 1\n  x y\n", 3),
        ("load 1m\n  x@st 1 y\n", 2),
        ("eval x\n", 1),
        ("eval_warn instant x\n", 1),
        ("eval instant at 0 x\n  expect nothing\n", 2),
        ("eval instant at 0 x\n  expect warn text: a\n", 2),
        ("eval instant at 0 x\n  expect fail regex: (\n", 2),
        ("eval instant at 0 x\n  expect string a\n", 2),
        ("eval instant at 0 x\n  x 1 2\n", 2),
        ("eval instant at 0 x\n  x\n", 2),
    ],
)
def test_a_line_that_is_not_understood_is_named(text: str, line: int) -> None:
    with pytest.raises(ScriptError, match=rf"^line {line}: "):
        commands(text)


def test_every_evaluation_of_prometheus_is_found() -> None:
    """Where the scripts are found. They are not copied."""
    for path in files():
        text = path.read_text()
        found = [command.line for command in commands(text) if isinstance(command, Evaluation)]
        lines = enumerate(text.split("\n"), 1)
        assert found == [number for number, line in lines if line.lstrip().startswith("eval")], path.name
