"""A backfill gives the samples that a ruler writes, bit for bit, however its range is cut, and only what differs from
the stored ones. The oracle evaluates the groups step by step."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from support.rules.step_oracle import Values, evaluated, groups_of, values_of
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.model.selector import Matcher
from tsdb.model.stale import STALE_BITS
from tsdb.promql.evaluate.query import LOOKBACK_MS
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.rules.backfill import SAMPLES_LIMIT, BackfillOptions, ComponentBackfill, begun
from tsdb.rules.dependencies import RuleComponent, components_of
from tsdb.rules.files import RuleGroup
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.unit_tests.notation import labels_of

START_MS = 1_700_000_000_000
STEP_MS = 5_000
END_MS = START_MS + 8 * 60_000
PARALLEL = """
- name: reader
  interval: 15s
  rules:
  - {record: twice, expr: 2 * sum_x}
  - {record: mean, expr: "avg_over_time(sum_x[1m]) + sum without (job) (peak)"}
- name: base
  interval: 10s
  query_offset: 5s
  limit: 3
  rules:
  - {record: sum_x, expr: sum by (job) (x)}
  - {record: high, expr: x > 6}
  - {record: high, expr: x < 2, labels: {low: "1"}}
  - {record: peak, expr: "max_over_time(sum_x[40s])"}
  - {record: rate, expr: "rate(x[30s]) or rate(x[30s] offset 20s)"}
  - {record: inner, expr: "max_over_time(sum(x)[30s:10s])"}
  - {record: none, expr: 'absent(x{job="c"})'}
  - {record: fixed, expr: "x @ end() - x @ 1700000200"}
  - {record: clash, expr: 'label_replace(x > 2, "job", "same", "", "")'}
  - {record: many, expr: 'x * on () group_right () (x{job="a"} > 3 or x{job="b"} > 5)'}
  - {record: limited, expr: "x or y"}
- {name: alone, interval: 20s, rules: [{record: const, expr: "5"}, {record: top, expr: "topk(1, x)"}]}
"""
SEQUENTIAL = (
    PARALLEL
    + """
- name: itself
  interval: 10s
  rules:
  - {record: before, expr: "after + 1 or count(x)"}
  - {record: counted, expr: "count(counted offset 10s) + 1 or count(x)"}
  - {record: after, expr: "before * 2"}
- name: alerts
  interval: 10s
  query_offset: 5s
  rules:
  - {alert: High, expr: x > 5, for: 20s, labels: {severity: page}, annotations: {v: "{{ $value }}"}}
  - {alert: High, expr: x > 6, labels: {severity: now}}
  - {alert: Kept, expr: x > 5, for: 10s, keep_firing_for: 30s}
  - {alert: Valued, expr: x > 5, labels: {is: "{{ $value }}"}}
  - {alert: Gone, expr: 'absent(x{job="a"})', for: 10s}
- {name: of_alerts, interval: 10s, query_offset: 5s, rules: [
    {record: firing, expr: 'count by (alertname) (ALERTS{alertstate="firing"})'}]}
- {name: limited, interval: 10s, limit: 1, rules: [{alert: Two, expr: x > 6, for: 10s}]}
"""
)


def some_samples(seed: int) -> MemoryStorage:
    rng, storage = random.Random(seed), MemoryStorage()
    for at_ms in range(START_MS - 360_000, END_MS, STEP_MS):
        for name, job in (("x", "a"), ("x", "b"), ("x", "c"), ("y", "d")):
            if rng.random() < 0.7:
                storage.add(labels_of({"__name__": name, "job": job}), [(at_ms, float(rng.randint(0, 9)))])
            elif rng.random() < 0.1:
                at = at_ms, float(np.array([STALE_BITS]).view(np.float64)[0])
                storage.add(labels_of({"__name__": name, "job": job}), [at])
    return storage


class Backfilled:
    """A backfill in stretches. changed: bits of the samples that it writes."""

    def __init__(
        self,
        groups: Sequence[RuleGroup],
        stored: Storage,
        cuts: Sequence[int],
        block_ms: int,
        start_ms: int = START_MS,
    ) -> None:
        self.changed: Values = {}
        self.failures: dict[tuple[str, str, str], int] = {}
        self.evaluations = 0
        for component in components_of(groups, LOOKBACK_MS):
            bounds = [start_ms, *([] if component.is_sequential else cuts), END_MS]
            for begin_ms, end_ms in pairwise(bounds):
                self._stretch(component, stored, start_ms, begin_ms, end_ms, block_ms)

    def _stretch(
        self, component: RuleComponent, stored: Storage, run_ms: int, begin_ms: int, end_ms: int, block_ms: int
    ) -> None:
        run = begun(component, stored, BackfillOptions(), run_ms, begin_ms)
        for at_ms in range(begin_ms + block_ms, end_ms + block_ms, block_ms):
            for labels, ts_ms, values in run.block(min(at_ms, end_ms)).rows():
                bits = zip(ts_ms.tolist(), values.view(np.int64).tolist(), strict=True)
                assert not any((labels, at) in self.changed for at in ts_ms.tolist())
                self.changed.update(((labels, at), value) for at, value in bits)
        for key, count in run.counts.failures.items():
            self.failures[key] = self.failures.get(key, 0) + count
        self.evaluations += run.counts.evaluations


def check(found: Values, expected: Values) -> None:
    wrong = [
        (dict(key[0]), (key[1] - START_MS) / 1000, expected.get(key), found.get(key))
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    ]
    assert not wrong, (len(wrong), wrong[:10])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", [PARALLEL, SEQUENTIAL], ids=["parallel", "sequential"])
def test_a_backfill_gives_what_a_ruler_writes(text: str, seed: int) -> None:
    rng, groups = random.Random(seed), groups_of(text)
    stored = some_samples(seed)
    cuts = sorted(rng.sample(range(START_MS + STEP_MS, END_MS, STEP_MS), seed))
    found = Backfilled(groups, stored, cuts, rng.choice((STEP_MS, 45_000, 7 * 60_000)))
    before = values_of(stored)
    expected = evaluated(groups, stored, START_MS, END_MS, STEP_MS)
    check(before | found.changed, expected)
    assert len(found.changed) > 500
    assert {name for _, _, name in found.failures} >= {"clash", "many", "limited"}


@pytest.mark.parametrize("text", [PARALLEL, SEQUENTIAL], ids=["parallel", "sequential"])
def test_what_was_recorded_is_not_written_again(text: str) -> None:
    groups, stored = groups_of(text), some_samples(7)
    evaluated(groups, stored, START_MS - 60_000, END_MS, STEP_MS)
    assert Backfilled(groups, stored, [START_MS + 200_000], 90_000).changed == {}


def test_a_corrected_rule_replaces_its_samples_and_those_that_read_them() -> None:
    """A step at which a rule fails keeps what is stored, so rules that fail are left out."""
    text = "\n".join(line for line in SEQUENTIAL.splitlines() if not re.search("clash|many|limit", line))
    groups, stored, raw = groups_of(text), some_samples(0), some_samples(0)
    wrong = groups_of(text.replace("sum by (job) (x)", "sum by (job) (y)").replace("x > 6}", "x > 4}"))
    evaluated(wrong, stored, START_MS - 60_000, END_MS, STEP_MS)
    for (labels, ts_ms), bits in values_of(stored).items():
        if ts_ms < START_MS:  # Stored samples before the backfill stay.
            raw.add(labels, [(ts_ms, float(np.array([bits]).view(np.float64)[0]))])
    after = values_of(stored) | Backfilled(groups, stored, [], 90_000).changed
    expected = values_of(raw) | Backfilled(groups, raw, [], 90_000).changed
    gone = {key: bits for key, bits in after.items() if key not in expected}
    assert not [key for key, bits in gone.items() if bits != STALE_BITS]
    assert gone
    check({key: bits for key, bits in after.items() if key not in gone}, expected)


class Bounded:
    """A storage that reads short ranges alone."""

    def __init__(self, base: MemoryStorage) -> None:
        self.base = base

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        if end_ms - start_ms > 360_000:
            raise Overloaded("too many", reason=SAMPLES_LIMIT)
        return self.base.select(matchers, start_ms, end_ms)


def test_a_range_that_is_too_large_to_read_is_halved() -> None:
    groups = groups_of("- {name: g, interval: 10s, rules: [{record: a, expr: sum(x)}]}")
    (component,) = components_of(groups, LOOKBACK_MS)
    stored = some_samples(1)
    run = ComponentBackfill(component, Bounded(stored), BackfillOptions(), START_MS, START_MS)
    blocks = [run.block(at_ms) for at_ms in (START_MS + 240_000, END_MS)]
    assert sum(map(len, blocks)) >= 48


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{record: a, expr: b}]}, {name: h, rules: [{record: b, expr: a}", "rule_circle"),
        ("{record: a, expr: x}]}, {name: h, rules: [{record: b, expr: a offset -5m}", "rule_reads_ahead"),
        ("{record: a, expr: x}, {record: b, expr: a @ 1700000000}", "rule_reads_ahead"),
    ],
)
def test_rules_whose_values_depend_on_the_order_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        components_of(groups_of(f"- {{name: g, rules: [{text}]}}".replace("}]}, {", "}]}\n- {")), LOOKBACK_MS)
    assert refused.value.reason == reason


def test_groups_that_share_nothing_are_alone() -> None:
    components = components_of(groups_of(SEQUENTIAL), LOOKBACK_MS)
    names = [[group.name for group in one.groups] for one in components]
    assert names == [["base", "reader"], ["alone"], ["itself"], ["alerts", "limited", "of_alerts"]]
    assert [one.is_sequential for one in components] == [False, False, True, True]
