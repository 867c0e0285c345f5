"""The ruler over samples in memory and a clock by hand: never short, none left out, the same after a restart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support import counters
from support.rules.ruler_process import ALERT, RECORD, START_MS, RulerProcess, alert
from tsdb.model.errors import HoleInRange, Overloaded, TsdbError, Unavailable
from tsdb.rules.files import RuleFile
from tsdb.rules.groups import RuleSample
from tsdb.rules.ruler import CATCH_UP_MS, EVALUATED, RulerOptions
from tsdb.rules.unit_tests.notation import labels_of


def test_each_multiple_of_the_interval_is_evaluated_once() -> None:
    process = RulerProcess(RECORD)
    process.settle()
    for number in range(1, 7):
        process.run(5, float(number))
    assert process.values(name="a") == [(10, 2.0), (20, 4.0), (30, 6.0)]
    assert [at for at, _ in process.values(name=EVALUATED, rule_group="f0;g")] == [0, 10, 20, 30]
    reads = process.reads
    process.settle()
    assert process.reads == reads


def test_a_time_that_is_not_complete_waits_and_is_evaluated_later() -> None:
    process = RulerProcess(RECORD)
    process.settle()
    process.complete_ms = START_MS + 10_000
    process.run(40, 1.0)
    assert process.values(name="a") == [(10, 1.0)]
    assert process.process.groups()[0].waits_for == "partition 1 is behind"
    # A sample that came in the meantime for these times counts.
    process.append([RuleSample(labels_of({"__name__": "x", "i": "late"}), START_MS + 20_000, 5.0)])
    process.complete_ms = None
    process.settle()
    assert process.values(name="a") == [(10, 1.0), (20, 6.0), (30, 6.0), (40, 6.0)]
    assert process.process.groups()[0].waits_for == ""


def test_nothing_looks_before_a_time_can_be_complete() -> None:
    process = RulerProcess(RECORD)
    process.new_ruler(RulerOptions(grace_ms=12_000))
    process.settle()
    ruler = process.new_ruler(RulerOptions(grace_ms=12_000))
    process.settle()
    asked = process.asked
    asked.clear()
    rests = []
    for _ in range(3):
        rests.append(ruler.step())
        process.clock.advance(4_000)
    assert (asked, rests) == ([], [5.0, 5.0, 4.0])
    ruler.step()
    assert asked == [START_MS]


@pytest.mark.parametrize("error", [Unavailable("away"), Overloaded("busy", reason="answers_bytes")])
def test_a_read_or_a_write_that_fails_for_now_is_repeated(error: TsdbError) -> None:
    process = RulerProcess(RECORD)
    process.settle()
    process.read_error = error
    process.run(20, 1.0)
    assert process.values(name="a") == []
    process.read_error, process.write_error = None, error
    process.run(10, 2.0)
    assert process.values(name="a") == []
    assert process.process.groups()[0].waits_for == error.message
    process.write_error = None
    process.settle()
    assert [at for at, _ in process.values(name="a")] == [10, 20, 30]


@pytest.mark.parametrize("error", [HoleInRange("a loss"), Overloaded("slow", reason="read_timeout")])
def test_a_read_that_always_fails_is_a_failure_of_its_rule(error: TsdbError) -> None:
    process = RulerProcess(RECORD)
    process.settle()
    process.read_error = error
    process.run(10, 1.0)
    (group,) = process.process.groups()
    assert (group.state.rules[0].error, group.evaluated_ms) == (error.message, START_MS + 10_000)


def test_an_expression_gives_a_bounded_number_of_series() -> None:
    process = RulerProcess(RECORD.replace("sum(x)", "x"))
    process.new_ruler(RulerOptions(series_max=1))
    process.settle()
    process.append([RuleSample(labels_of({"__name__": "x", "i": "2"}), START_MS, 5.0)])
    process.run(10, 1.0)
    assert "2 series; the limit is 1 (rules_series_max)" in process.process.groups()[0].state.rules[0].error


def test_what_several_rules_of_a_group_select_is_read_once() -> None:
    rules = ["sum(x)", "x", "sum_over_time(x[20s])", "x offset 10s", "last_over_time(x[15m])", "sum(first)"]
    names = ["first", *(f"r{number}" for number in range(1, len(rules)))]
    texts = [f"{{record: {name}, expr: '{text}'}}" for name, text in zip(names, rules, strict=True)]
    together = RulerProcess(f"groups: [{{name: g, interval: 10s, rules: [{', '.join(texts)}]}}]")
    apart = RulerProcess(
        f"groups: [{', '.join(f'{{name: g{at}, interval: 10s, rules: [{text}]}}' for at, text in enumerate(texts))}]"
    )
    for process in (together, apart):
        process.settle()
        for number in range(12):
            process.run(5, float(number))
    for name in names:
        assert together.values(name=name) == apart.values(name=name)
        assert len(together.values(name=name)) >= 5
    reads = together.reads
    together.run(10, 1.0)
    assert together.reads - reads == 2, "x once, and first"


def test_a_group_waits_for_the_records_that_it_reads() -> None:
    reader = "{name: r, interval: 10s, rules: [{record: b, expr: a * 2}]}"
    process = RulerProcess(f"groups: [{reader}, {RECORD.removeprefix('groups: [')}")
    process.settle()
    process.run(20, 1.0)
    assert process.values(name="b") == [(10, 2.0), (20, 2.0)]


def test_results_have_the_time_of_the_offset() -> None:
    process = RulerProcess(RECORD.replace("interval: 10s", "interval: 10s, query_offset: 5s"))
    process.settle()
    for number in range(1, 5):
        process.run(5, float(number))
    assert process.values(name="a") == [(5, 1.0), (15, 3.0)]


@pytest.mark.parametrize("restart_at_s", range(20, 160, 10))
def test_a_restart_at_any_time_changes_no_alert_and_no_sample(restart_at_s: int) -> None:
    """Values: high until 60 s, low after. Down for 20 s: the times between are evaluated afterwards."""
    expected, found = (RulerProcess(f"groups: [{ALERT}]") for _ in range(2))
    for process in (expected, found):
        process.settle()
    for at_s in range(5, 180, 5):
        for process in (expected, found):
            process.clock.advance(5_000)
            process.sample(10.0 if at_s <= 60 else 1.0)
        expected.settle()
        if at_s == restart_at_s:
            found.new_ruler()
        if not restart_at_s <= at_s < restart_at_s + 20:
            found.settle()
            if at_s >= restart_at_s + 20:
                assert alert(found) == alert(expected), at_s
    assert {labels: (one.ts_ms, one.values[0]) for labels, one in found.apply_all()._columns.items()} == {
        labels: (one.ts_ms, one.values[0]) for labels, one in expected.apply_all()._columns.items()
    }
    assert expected.values(name="ALERTS", alertname="A", alertstate="firing")[0] == (40, 1.0)
    assert expected.values(name="ALERTS", alertname="A", alertstate="firing")[-1] == (110, None)


def test_steps_before_the_last_hour_are_left_out_and_counted() -> None:
    process = RulerProcess(RECORD)
    process.settle()
    process.run(10, 1.0)
    process.complete_ms = 0
    process.clock.advance(2 * CATCH_UP_MS)
    process.complete_ms = None
    process.settle()
    times = [at for at, _ in process.values(name=EVALUATED, rule_group="f0;g")]
    assert times[:3] == [0, 10, 10 + CATCH_UP_MS // 1000]
    assert times[-1] == 10 + 2 * CATCH_UP_MS // 1000


def test_a_group_that_is_gone_ends_its_series() -> None:
    process = RulerProcess(RECORD)
    process.settle()
    process.run(10, 1.0)
    process.change(RECORD.replace("name: g", "name: other").replace("record: a", "record: b"))
    process.write_error = Unavailable("away")
    process.settle()
    process.run(5, 1.0)
    process.write_error = None
    process.settle()
    assert process.values(name="a") == [(10, 1.0), (15, None)]
    process.run(15, 1.0)
    assert [at for at, _ in process.values(name="b")] == [10, 20, 30]


def test_files_that_stay_equal_are_not_taken_again() -> None:
    process = RulerProcess(RECORD)
    process.settle()
    before: Sequence[RuleFile] = process.files
    process.run(10, 1.0)
    assert process.process.groups()[0].group is before[0].groups[0]


@pytest.mark.parametrize("fails", ["complete", "read"])
def test_a_step_is_evaluated_short_only_after_the_bound_and_repaired_when_the_rest_comes(fails: str) -> None:
    process = RulerProcess(RECORD)
    process.new_ruler(RulerOptions(wait_max_ms=20_000))
    process.settle()
    process.run(10, 1.0)
    if fails == "complete":
        process.complete_ms = START_MS + 10_000
    else:
        process.read_error = Unavailable("store away")
    process.run(30, 2.0)
    assert process.values(name="a") == [(10, 1.0)]
    before = counters.sample("tsdb_ruler_short_evaluations_total")
    process.run(10, 3.0)
    assert [at for at, _ in process.values(name="a")] == [10, 20]
    assert counters.sample("tsdb_ruler_short_evaluations_total") == before + 1
    process.complete_ms = process.read_error = None
    process.run(10, 4.0)
    assert process.values(name="a") == [(10, 1.0), (20, 2.0), (30, 2.0), (40, 2.0), (50, 3.0), (60, 4.0)]


def test_a_restarted_ruler_with_a_bound_waits_for_the_log_without_a_loop() -> None:
    process = RulerProcess(RECORD)
    process.settle()
    process.run(20, 1.0)
    ruler = process.new_ruler(RulerOptions(wait_max_ms=0))
    assert ruler.step() == 0.0  # It has restored the group.
    process.rewind_error = Unavailable("log away")
    process.run(10, 2.0)
    assert ruler.step() > 0.0
    process.rewind_error = None
    process.settle()
    assert process.values(name="a") == [(10, 1.0), (20, 1.0), (30, 2.0)]
