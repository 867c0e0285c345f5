"""Bad input of rules stops nothing else: the other rules and groups go on as if it was not there.

| input | test |
|---|---|
| a rule that fails; a result over its limit; duplicate series | test_groups: a rule that fails says why |
| an expression with too many series | test_ruler: a bounded number of series |
| 10,000 rules | here |
| a group slower than its interval | here |
| an Alertmanager that hangs or answers 500 | test_notifier |
| a rule that records a name of another group | here; test_files: rules that write the same series |
| clocks apart | here |
| a rule file replaced in the middle of an evaluation | here |
| a template that fails | templates/test_template: a template that fails says why |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from support.rules.ruler_process import RECORD, START_MS, RulerProcess
from tsdb.rules.groups import RuleSample
from tsdb.rules.placement import Partitions
from tsdb.rules.ruler import RuleRead
from tsdb.rules.unit_tests.notation import labels_of

OTHER = "groups: [{name: o, interval: 10s, rules: [{record: good, expr: sum(x)}]}]"


class SlowProcess(RulerProcess):
    """A process whose reads take time, and during which something may happen."""

    read_ms = 0

    def happens(self) -> None:
        """Something that comes in the middle of the next read."""

    @contextmanager
    def open_read(self, after: Mapping[int, int] | None, partitions: Partitions = None) -> Iterator[RuleRead]:
        with super().open_read(after, partitions) as read:
            self.happens()
            self.clock.advance(self.read_ms)
            yield read


@pytest.mark.slow
def test_ten_thousand_rules_of_which_some_fail_are_all_evaluated() -> None:
    rules = [f"{{record: 'r{number}', expr: {number}}}" for number in range(9_990)]
    rules += [f"{{record: bad{number}, expr: 'x + on() x'}}" for number in range(10)]
    groups = [f"{{name: g{first}, interval: 10s, rules: [{', '.join(rules[first::100])}]}}" for first in range(100)]
    process = RulerProcess(f"groups: [{', '.join(groups)}]")
    for job in "ab":
        process.append([RuleSample(labels_of({"__name__": "x", "job": job}), START_MS, 1.0)])
    process.settle()
    states = [state for one in process.process.groups() for state in one.state.rules]
    assert len(states) == 10_000
    assert sum(state.evaluated_at_ms is not None for state in states) == 10_000
    assert sum(bool(state.error) for state in states) == 10
    assert process.values(name="r9989") == [(0, 9_989.0)]


def test_a_group_slower_than_its_interval_leaves_no_time_out_and_stops_no_other_group() -> None:
    process = SlowProcess(RECORD, OTHER)
    process.settle()
    process.read_ms = 7_000  # A step of both groups takes longer than their interval.
    process.sample(1.0)
    process.clock.advance(10_000)
    for _ in range(12):
        process.process.step()
    process.read_ms = 0
    process.settle()
    for name in ("a", "good"):
        times = [at for at, _ in process.values(name=name)]
        assert times == list(range(times[0], times[-1] + 1, 10))
        assert times[-1] > 50


def test_a_rule_that_records_a_name_of_another_group_changes_only_equal_series() -> None:
    file = "groups: [{name: n, interval: 10s, rules: [{record: a, expr: sum(x) * 2, labels: {of: n}}]}]"
    process = RulerProcess(RECORD, file)
    process.settle()
    process.run(30, 1.0)
    assert process.values(name="a") == [(10, 1.0), (20, 1.0), (30, 1.0)]
    assert process.values(name="a", of="n") == [(10, 2.0), (20, 2.0), (30, 2.0)]


@pytest.mark.parametrize("apart_s", [-40, 40])
def test_clocks_that_are_apart_delay_results_and_change_none(apart_s: int) -> None:
    """The clock of the log is ahead of that of the ruler by apart_s."""
    process = RulerProcess(RECORD)
    process.settle()
    for number in range(1, 25):
        process.clock.advance(5_000)
        now_ms = process.clock.now_ms() + 1_000 * apart_s
        process.sample(float(number), at_ms=now_ms)
        process.complete_ms = now_ms
        process.settle()
    found = dict(process.values(name="a"))
    assert len(found) > 6
    for at_s, value in found.items():
        # The newest sample up to a time, of those that come every 5 s.
        assert value == (at_s - apart_s) / 5


def test_a_file_replaced_in_the_middle_of_an_evaluation_counts_from_the_next_step_on() -> None:
    process = SlowProcess(RECORD)
    process.settle()
    process.run(5, 3.0)
    replaced = RECORD.replace("record: a", "record: b")
    process.happens = lambda: process.change(replaced)  # type: ignore[method-assign]
    process.clock.advance(5_000)
    process.process.step()
    process.happens = lambda: None  # type: ignore[method-assign]
    process.run(20, 3.0)
    assert process.values(name="a") == [(10, 3.0), (20, None)]
    assert process.values(name="b") == [(20, 3.0), (30, 3.0)]
