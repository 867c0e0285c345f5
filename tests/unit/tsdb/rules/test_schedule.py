"""The schedule: order of groups that read one another, and what a change of the files keeps."""

from __future__ import annotations

import pytest

from tsdb.model.window import ceil_to
from tsdb.rules.alerts import Labels
from tsdb.rules.files import RuleFile, parse_rules
from tsdb.rules.groups import RuleGroupState, RuleState
from tsdb.rules.schedule import RuleSchedule


def file(name: str, **groups: str) -> RuleFile:
    """groups: rules by the name of their group, as `recorded = expression` or `recorded = expression, interval`."""
    texts = []
    for group, rule in groups.items():
        record, _, rest = rule.partition(" = ")
        expression, _, interval = rest.partition(", ")
        texts.append(
            f"{{name: {group}, interval: {interval or '1m'}, rules: [{{record: {record}, expr: '{expression}'}}]}}"
        )
    return parse_rules(f"groups: [{', '.join(texts)}]".encode(), name)


def names(schedule: RuleSchedule) -> list[str]:
    return [one.group.name for one in schedule.groups]


@pytest.mark.parametrize(
    ("at_ms", "expected"), [(0, 0), (1, 60_000), (60_000, 60_000), (60_001, 120_000), (-1, 0), (-60_001, -60_000)]
)
def test_times_are_multiples_of_the_interval(at_ms: int, expected: int) -> None:
    assert ceil_to(at_ms, 60_000) == expected


def test_groups_come_after_those_whose_records_they_read() -> None:
    schedule = RuleSchedule()
    schedule.renew([file("f", last="c = b", middle="b = rate(a[5m])", first="a = x"), file("g", other="d = sum(y)")])
    assert names(schedule) == ["first", "middle", "last", "other"]
    by_name = {one.group.name: one for one in schedule.groups}
    assert [one.group.name for one in by_name["last"].needs] == ["middle"]
    for one in schedule.groups:
        one.next_ms = 0
    assert [one.group.name for one in schedule.groups if one.may_evaluate()] == ["first", "other"]
    by_name["first"].next_ms = 60_000
    assert by_name["middle"].may_evaluate()
    assert not by_name["last"].may_evaluate()


def test_a_circle_of_groups_stops_none_of_them() -> None:
    schedule = RuleSchedule()
    schedule.renew([file("f", one="a = b", two="b = c", three="c = a", alone="d = d")])
    assert sorted(names(schedule)) == ["alone", "one", "three", "two"]
    for _ in range(4):
        for one in schedule.groups:
            one.next_ms = one.next_ms or 0
            if one.may_evaluate():
                one.next_ms = 60_000
    assert {one.next_ms for one in schedule.groups} == {60_000}


@pytest.mark.slow
def test_a_chain_of_many_groups_is_ordered() -> None:
    schedule = RuleSchedule()
    groups = {f"g{number}": f"r{number} = r{number + 1}" for number in range(3_000)}
    schedule.renew([file("f", **groups)])
    assert names(schedule) == [f"g{number}" for number in reversed(range(3_000))]


def test_equal_groups_keep_state_and_time_and_those_that_are_gone_end_their_series() -> None:
    schedule = RuleSchedule()
    schedule.renew([file("f", kept="a = x", gone="b = x")])
    series: Labels = (("__name__", "b"),)
    for one in schedule.groups:
        one.next_ms = 60_000
        one.state = RuleGroupState((RuleState(frozenset([series]), samples=1),))
    schedule.renew([file("f", kept="a = x + 1, 40s", new="c = x")])
    kept, new = schedule.groups
    assert (kept.next_ms, kept.state.rules[0].samples) == (80_000, 1)  # The next multiple of the new interval.
    assert (new.next_ms, new.state.rules[0].samples) == (None, 0)
    assert schedule.ended == [(frozenset([series]), 60_000)]
