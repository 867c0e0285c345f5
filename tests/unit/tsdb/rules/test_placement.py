"""A group whose selectors give all placement labels exactly waits for the partitions of these series alone."""

from __future__ import annotations

import pytest

from support.rules.ruler_process import START_MS, RulerProcess
from support.rules.stepper import group
from tsdb.model.placement import PlacementRule
from tsdb.rules.groups import RuleSample
from tsdb.rules.placement import RulePlacement
from tsdb.rules.unit_tests.notation import labels_of

PLACEMENT = RulePlacement(PlacementRule(("job", "host")), 64)


def place(**labels: str) -> int:
    return PLACEMENT.of_series(
        labels_of({"__name__" if name == "name" else name: text for name, text in labels.items()})
    )


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ('{record: r, expr: \'x{job="a",host="h"}\'}', {place(job="a", host="h")}),
        ('{record: r, expr: \'rate({job="a",host="h"}[5m] offset 1h)\'}', {place(job="a", host="h")}),
        ('{record: r, expr: \'x{job="a",host=""}\'}', {place(job="a")}),
        ('{record: r, expr: \'x_count{job="",host="",zone="z"}\'}', {place(name="x")}),
        (
            '{record: r, expr: \'x{job="a",host="h"} / y{job="b",host="h"}\'}',
            {place(job="a", host="h"), place(job="b", host="h")},
        ),
        (
            '{record: r, expr: \'x{job="a",host="h"}\'}, {alert: A, expr: \'y{job="b",host="h"}\'}',
            {place(job="a", host="h"), place(job="b", host="h")},
        ),
        ("{record: r, expr: x}", None),
        ("{record: r, expr: 'x{job=\"a\"}'}", None),
        ('{record: r, expr: \'x{job="a",host=~"h"}\'}', None),
        ('{record: r, expr: \'{job="",host="",zone="z"}\'}', None),
        ('{record: r, expr: \'x{job="a",host="h"} + y\'}', None),
        ('{record: r, expr: \'x{job="a",host="h"}\'}, {record: s, expr: y}', None),
        ("{record: r, expr: time()}", None),
        ('{alert: A, expr: \'x{job="a",host="h"}\', annotations: {s: \'{{ query "y" }}\'}}', None),
    ],
)
def test_partitions_of_a_group_are_those_of_all_series_that_it_selects(rules: str, expected: set[int] | None) -> None:
    assert PLACEMENT.of_group(group(f"rules: [{rules}]")) == expected


FILE = """
groups:
- {name: a, interval: 10s, rules: [{record: of_a, expr: 'sum(x{job="a"})'}]}
- {name: all, interval: 10s, rules: [{record: of_all, expr: sum(x)}]}
"""


def process() -> tuple[RulerProcess, int, int]:
    """A process, the partition of the group `a`, and another one that has series too."""
    found = RulerProcess(FILE)
    found.placement = RulePlacement(PlacementRule(("job",)), len(found.records))
    found.new_ruler()
    own = found.placement.of_series(labels_of({"job": "a"}))
    other = next(job for job in "bcdefgh" if found.placement.of_series(labels_of({"job": job})) != own)
    found.append([RuleSample(labels_of({"__name__": "x", "job": job}), START_MS, 1.0) for job in ("a", other)])
    found.settle()
    return found, own, found.placement.of_series(labels_of({"job": other}))


def through(found: RulerProcess) -> dict[str, int]:
    """Seconds since the start up to which each group is evaluated."""
    return {one.group.name: ((one.evaluated_ms or START_MS) - START_MS) // 1000 for one in found.process.groups()}


def test_a_partition_that_lags_stops_the_groups_that_may_read_it_alone() -> None:
    found, own, other = process()
    found.run(20)
    assert through(found) == {"a": 20, "all": 20}
    found.lagging = frozenset({other})
    # Late samples of the partition whose labels cannot be read now.
    found.append([RuleSample(labels_of({"__name__": "x", "job": job}), START_MS + 1, 2.0) for job in "abcdefgh"])
    found.run(60)
    assert through(found) == {"a": 80, "all": 20}
    found.lagging = frozenset({own})
    found.run(30)
    assert through(found) == {"a": 80, "all": 20}
    found.lagging = frozenset()
    found.run(30)
    assert through(found) == {"a": 140, "all": 140}
    assert [value for _, value in found.values(name="of_a")][1:] == [2.0] * 14
    assert [value for _, value in found.values(name="of_all")][1:] == [16.0] * 14


def test_a_restarted_ruler_waits_for_the_partition_of_its_marks_too() -> None:
    found, own, _ = process()
    found.run(20)
    assert found.placement is not None
    marks = found.placement.of_series(
        labels_of({"__name__": "tsdb_rule_group_evaluated", "rule_group": found.files[0].groups[0].key})
    )
    found.lagging = frozenset(range(len(found.records))) - {own, marks}
    found.new_ruler()
    found.run(20)
    assert through(found) == {"a": 40, "all": 0}
    assert [at for at, _ in found.values(name="of_a")] == [0, 10, 20, 30, 40]
