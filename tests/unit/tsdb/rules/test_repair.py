"""Late samples: after settling, recorded series and alerts are those of an evaluation over all samples, bit for bit.

Schedules are random: samples late by up to ten minutes, floods, kills of the ruler, reads and writes that fail, reads
that see more of the log than the ruler has looked at. The oracle evaluates the groups once, in order, with all samples.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from support import counters
from support.rules.memory_log import MemoryLog
from tsdb.model.clock import ManualClock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.placement import PlacementRule
from tsdb.model.stale import STALE_BITS
from tsdb.promql.evaluate.query import DEFAULTS, LOOKBACK_MS
from tsdb.rules.alerts import AlertState, Labels, active
from tsdb.rules.backfill import BackfillOptions, begun
from tsdb.rules.dependencies import components_of
from tsdb.rules.files import parse_rules
from tsdb.rules.groups import RuleGroupState, RuleSample, RuleSurroundings, evaluate_group, new_state
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.placement import RulePlacement
from tsdb.rules.ruler import EVALUATED, Ruler, RulerOptions
from tsdb.rules.schedule import RuleSchedule
from tsdb.rules.unit_tests.histograms import HistogramValue
from tsdb.rules.unit_tests.notation import labels_of
from tsdb.rules.values import RuleValue, ValueBits, value_bits
from tsdb.rules.vectors import vector_query

START_MS = 1_700_000_000_000
STEP_MS = 5_000
GRACE_MS = 10_000
RULES = """
groups:
- name: reader
  interval: 15s
  rules:
  - {record: twice, expr: 2 * sum_x}
  - {record: mean, expr: "avg_over_time(sum_x[1m]) + sum without (job) (peak)"}
- name: base
  interval: 10s
  rules:
  - {record: sum_x, expr: sum by (job) (x)}
  - {record: high, expr: x > 6}
  - {record: high, expr: x < 2, labels: {low: "1"}}
  - {record: peak, expr: "max_over_time(sum_x[40s])"}
  - {record: rate, expr: "rate(x[30s]) or rate(x[30s] offset 20s)"}
  - {record: inner, expr: "max_over_time(sum(x)[30s:10s])"}
  - {record: none, expr: 'absent(x{job="c"})'}
  - {record: counted, expr: "count(counted offset 10s) + 1 or count(x)"}
- name: alerts
  interval: 10s
  query_offset: 5s
  rules:
  - {alert: High, expr: x > 5, for: 20s, labels: {severity: page}, annotations: {v: "{{ $value }}"}}
  - {alert: High, expr: x > 6, labels: {severity: now}}
  - {alert: Kept, expr: x > 5, for: 10s, keep_firing_for: 30s}
  - {alert: Gone, expr: 'absent(x{job="a"})', for: 10s}
- name: of_alerts
  interval: 10s
  query_offset: 5s
  rules: [{record: firing, expr: 'count by (alertname) (ALERTS{alertstate="firing"})'}]
"""


class Run:
    """Rulers over a log in memory, driven by a seed."""

    def __init__(self, seed: int, text: str = RULES, options: RulerOptions = RulerOptions(grace_ms=GRACE_MS)) -> None:
        self.options = options
        self.rng = random.Random(seed)
        self.clock = ManualClock(START_MS)
        self.log = MemoryLog(self.clock, self.rng, GRACE_MS)
        self.files = [parse_rules(text.encode(), "f")]
        self.held: list[tuple[int, RuleSample]] = []  # Samples on their way, with the time of their arrival.
        self.raw: list[RuleSample] = []
        self.ruler = self.new_ruler()

    def new_ruler(self) -> Ruler:
        self.ruler = self.log.ruler(self.files, self.options)
        return self.ruler

    def pass_time(self) -> None:
        """Five seconds: each job gives a sample, which comes now, later, or with a flood; then the ruler works."""
        self.clock.advance(STEP_MS)
        now_ms = self.clock.now_ms()
        for job in "abc":
            if self.rng.random() < 0.7:
                at_ms = now_ms - self.rng.choice((0, 0, 0, 1, 999))
                sample = RuleSample(labels_of({"__name__": "x", "job": job}), at_ms, self.value())
                self.held.append((now_ms + self._delay_ms(), sample))
        self.deliver(now_ms)
        error: TsdbError | None = Unavailable("away") if self.rng.random() < 0.1 else None
        self.log.read_error, self.log.write_error = self.rng.choice(((error, None), (None, error)))
        for _ in range(self.rng.randint(0, 8)):
            self.ruler.step()
        if self.rng.random() < 0.03:
            self.new_ruler()

    def value(self) -> RuleValue:
        """The next value of a job."""
        return float(self.rng.randint(0, 9))

    def _delay_ms(self) -> int:
        kind = self.rng.random()
        if kind < 0.7:
            return 0
        return self.rng.randint(1, 20_000) if kind < 0.9 else self.rng.randint(20_000, 600_000)

    def deliver(self, now_ms: int) -> None:
        due = [sample for at_ms, sample in self.held if at_ms <= now_ms]
        self.held = [one for one in self.held if one[0] > now_ms]
        self.rng.shuffle(due)
        self.raw += due
        if due:
            self.log.append(due)

    def settle(self) -> None:
        """All samples come, and the ruler does all that it may."""
        self.log.read_error = self.log.write_error = None
        self.deliver(self.clock.now_ms() + 10**9)
        for _ in range(40):  # A ruler that was just started waits for the grace first.
            self.clock.advance(2_000)
            while self.ruler.step() == 0.0:
                pass

    def check(self) -> None:
        found, expected = _values(self.log.apply_all()), self.oracle()
        wrong = [
            (dict(labels), (ts_ms - START_MS) / 1000, expected.get((labels, ts_ms)), found.get((labels, ts_ms)))
            for labels, ts_ms in sorted(found.keys() | expected.keys())
            if _differs(expected.get((labels, ts_ms)), found.get((labels, ts_ms)))
        ]
        assert not wrong, wrong[:10]
        assert len(expected) > 50

    def oracle(self) -> dict[tuple[Labels, int], ValueBits]:
        """Bits of all results when each step is evaluated once, with all samples."""
        storage = MemoryStorage()
        for raw in self.raw:
            storage.add(raw.labels, [(raw.ts_ms, raw.value)])
        schedule = RuleSchedule()
        schedule.renew(self.files)
        states: dict[str, RuleGroupState] = {one.group.key: new_state(one.group) for one in schedule.groups}
        steps = {one.group.key: set(self.evaluated(one.group.key)) for one in schedule.groups}

        def write(samples: Sequence[RuleSample]) -> None:
            for written in samples:
                storage.add(written.labels, [(written.ts_ms, written.value)])

        surroundings = RuleSurroundings(vector_query(lambda: storage, DEFAULTS), write)
        for at_ms in range(START_MS, self.clock.now_ms() + 1, STEP_MS):
            for one in schedule.groups:
                group, offset_ms = one.group, one.group.query_offset_ms or 0
                if at_ms - offset_ms in steps[group.key]:
                    states[group.key] = evaluate_group(group, states[group.key], at_ms, offset_ms, surroundings)
        return _values(storage)

    def evaluated(self, group: str) -> list[int]:
        """Times of a group's evaluations; none may be missing."""
        labels = labels_of({"__name__": EVALUATED, "rule_group": group})
        times = self.log.apply_all()._columns[labels].ts_ms
        assert len({after - at for at, after in pairwise(times)}) == 1
        return times


def _values(storage: MemoryStorage) -> dict[tuple[Labels, int], ValueBits]:
    return {
        (labels, ts_ms): value_bits(column.histograms.get(ts_ms, value))
        for labels, column in storage._columns.items()
        if dict(labels)["__name__"] not in ("x", EVALUATED)
        for ts_ms, value in zip(column.ts_ms, column.values, strict=True)
    }


def _differs(expected: ValueBits | None, found: ValueBits | None) -> bool:
    """A result that was taken back has a stale marker where the oracle has nothing."""
    return found not in (None, STALE_BITS) if expected is None else found != expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_results_are_those_of_all_samples_whenever_they_came(seed: int) -> None:
    run = Run(seed)
    for _ in range(150):
        run.pass_time()
    run.settle()
    run.check()


HISTOGRAMS = """
groups:
- name: reader
  interval: 15s
  rules:
  - {record: rates, expr: "sum by (job) (rate(sums[1m]))"}
  - {record: p50, expr: "histogram_quantile(0.5, rates)"}
- name: base
  interval: 10s
  rules:
  - {record: sums, expr: sum by (job) (x)}
  - {record: either, expr: "sum(x) or vector(1)"}
  - {record: count, expr: "count_over_time(sums[40s])"}
  - {alert: Holds, expr: "histogram_count(sums) > 5", for: 10s, annotations: {v: "{{ $value }}"}}
"""


class HistogramRun(Run):
    """Some of the samples are histograms, whose shapes change."""

    def value(self) -> RuleValue:
        if self.rng.random() < 0.2:
            return super().value()
        counts = {self.rng.randint(-3, 3): float(self.rng.randint(1, 9)) for _ in range(3)}
        total = sum(counts.values())
        return HistogramValue(self.rng.randint(0, 2), total, 1.5 * total, positive=counts).columns()


@pytest.mark.parametrize("seed", range(2))
def test_recorded_histograms_are_those_of_all_samples_whenever_they_came(seed: int) -> None:
    run = HistogramRun(seed, HISTOGRAMS)
    for _ in range(60):
        run.pass_time()
    run.settle()
    run.check()
    assert any(isinstance(bits, bytes) for bits in _values(run.log.apply_all()).values())


PLACED = """
groups:
- name: of_a
  interval: 10s
  rules:
  - {record: a_sum, expr: 'sum by (job) (x{job="a"})'}
  - {record: a_peak, expr: 'max_over_time(a_sum{job="a"}[40s])'}
  - {record: a_rate, expr: 'rate(x{job="a"}[30s])', labels: {job: c}}
- name: reads_a
  interval: 15s
  rules: [{record: a_twice, expr: '2 * a_sum{job="a"}'}]
- name: alerts
  interval: 10s
  rules: [{alert: High, expr: 'x{job="b"} > 5', for: 20s}]
- name: all
  interval: 10s
  rules: [{record: all, expr: "sum(x) + count(a_rate)"}]
"""


class PlacedRun(Run):
    """Series are placed by their job, and partitions lag for a while, one after another."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, PLACED)
        self.log.placement = RulePlacement(PlacementRule(("job",)), len(self.log.records))
        self.new_ruler()

    def pass_time(self) -> None:
        if self.rng.random() < 0.2:
            self.log.lagging = frozenset({self.rng.randrange(3)}) if self.rng.random() < 0.6 else frozenset()
        super().pass_time()

    def settle(self) -> None:
        self.log.lagging = frozenset()
        super().settle()


@pytest.mark.parametrize("seed", range(2))
def test_groups_of_some_partitions_give_the_results_of_all(seed: int) -> None:
    run = PlacedRun(seed)
    for _ in range(100):
        run.pass_time()
    run.settle()
    run.check()
    partitions = {one.group.name: one.partitions for one in run.ruler.groups()}
    assert partitions["all"] is None
    assert {name: len(found or ()) for name, found in partitions.items() if name != "all"} == {
        "of_a": 1,
        "reads_a": 1,
        "alerts": 1,
    }


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_results_are_those_of_all_samples_in_many_schedules(seed: int) -> None:
    run = Run(seed)
    for _ in range(300):
        run.pass_time()
    run.settle()
    run.check()


@pytest.mark.parametrize("seed", range(2))
def test_a_backfill_gives_what_a_ruler_recorded_and_repaired(seed: int) -> None:
    """The range begins in the middle, with the state that the ruler's series had there."""
    run = Run(seed)
    for _ in range(100):
        run.pass_time()
    run.settle()
    recorded, stored = run.log.apply_all(), MemoryStorage()
    start_ms, end_ms = START_MS + 180_000, START_MS + 420_000
    for labels, column in recorded._columns.items():
        is_raw, pairs = dict(labels)["__name__"] == "x", zip(column.ts_ms, column.values, strict=True)
        stored.add(labels, [(ts_ms, value) for ts_ms, value in pairs if is_raw or ts_ms < start_ms])
    found: dict[tuple[Labels, int], ValueBits] = {}
    for component in components_of(run.files[0].groups, LOOKBACK_MS):
        done = begun(component, stored, BackfillOptions(), start_ms, start_ms).block(end_ms)
        for labels, times, values in done.rows():
            found.update(
                ((labels, at), value_bits(one)) for at, one in zip(times.tolist(), values.tolist(), strict=True)
            )
    expected = {key: bits for key, bits in _values(recorded).items() if start_ms <= key[1] < end_ms}
    wrong = [key for key in found.keys() | expected.keys() if _differs(found.get(key), expected.get(key))]
    assert not wrong, wrong[:10]
    assert len(found) > 500


def test_without_repair_results_are_not_those_of_all_samples() -> None:
    run = Run(0, options=RulerOptions(grace_ms=GRACE_MS, repair_ms=0))
    for _ in range(60):
        run.pass_time()
    run.settle()
    with pytest.raises(AssertionError, match="ALERTS"):
        run.check()


class Quiet(Run):
    """A ruler over samples that the test gives, without failures."""

    def __init__(self, rules: str) -> None:
        super().__init__(0, f"groups: [{{name: g, interval: 10s, rules: [{rules}]}}]")
        self.log.rng = None
        self.run_steps()

    def run_steps(self) -> None:
        while self.ruler.step() == 0.0:
            pass

    def minutes(self, count: int, value: float) -> None:
        for _ in range(12 * count):
            self.clock.advance(STEP_MS)
            self.give(self.clock.now_ms(), value)
            self.run_steps()

    def give(self, at_ms: int, value: float, name: str = "x") -> None:
        self.log.append([RuleSample(labels_of({"__name__": name}), at_ms, value)])

    def late(self, at_ms: int, value: float, name: str = "x") -> list[int]:
        """A late sample. Returns the seconds since the start of the steps that are evaluated again."""
        self.give(at_ms, value, name)
        self.ruler.step()
        (one,) = self.ruler.groups()
        marked = sorted(set().union(*one.repairs.steps.values()))
        self.clock.advance(10_000)
        self.run_steps()
        return [(step - START_MS) // 1000 for step in marked]


@pytest.mark.parametrize(
    ("expression", "steps"),
    [
        ("rate(x[30s])", [60, 70, 80]),
        ("rate(x[30s] offset 20s)", [80, 90, 100]),
        ("max_over_time(sum(rate(x[20s]))[20s:5s])", [60, 70, 80, 90]),
        ("rate(x[30s]) + y", [60, 70, 80]),
        ("y", []),
        ("last_over_time(x[10s] @ 1700000061)", [*range(10, 180, 10)]),
    ],
)
def test_a_late_sample_repairs_exactly_the_steps_that_it_can_reach(expression: str, steps: list[int]) -> None:
    run = Quiet(f"{{record: a, expr: '{expression}'}}")
    run.minutes(3, 1.0)
    counted = ("tsdb_ruler_repaired_steps_total", "tsdb_ruler_evaluations_total")
    before = [counters.sample(name) for name in counted]
    assert run.late(START_MS + 57_500, 5.0) == steps
    # One new step came meanwhile.
    assert [counters.sample(name) - known for name, known in zip(counted, before, strict=True)] == [len(steps), 1]


def test_a_sample_beyond_the_horizon_is_counted_and_repairs_nothing() -> None:
    run = Quiet("{record: a, expr: 'rate(x[30s])'}")
    run.ruler = run.log.ruler(run.files, RulerOptions(grace_ms=GRACE_MS, repair_ms=60_000))
    run.minutes(3, 1.0)
    before = counters.sample("tsdb_ruler_unrepaired_steps_total")
    assert run.late(START_MS + 57_500, 5.0) == []
    assert counters.sample("tsdb_ruler_unrepaired_steps_total") - before == 3


def test_an_alert_that_late_samples_end_is_resolved_and_the_rule_says_so() -> None:
    run = Quiet("{alert: A, expr: x > 5, for: 20s}")
    run.minutes(1, 9.0)
    (one,) = run.ruler.groups()
    assert [alert.state for alert in active(one.state.rules[0].alerts)] == [AlertState.FIRING]
    for at_ms in range(START_MS, run.clock.now_ms() + 1, STEP_MS):
        run.give(at_ms, 1.0)
    for _ in range(2):
        run.run_steps()
        run.clock.advance(10_000)
    run.run_steps()
    (one,) = run.ruler.groups()
    assert active(one.state.rules[0].alerts) == []
    notes = [(note.was, note.now, (note.from_ms - START_MS) // 1000) for note in one.repairs.notes[0]]
    assert notes == [("pending", "inactive", 10), ("firing", "inactive", 30)]


def test_samples_that_are_always_late_repair_a_group_once_an_interval() -> None:
    run = Quiet("{record: a, expr: sum(x)}")
    run.minutes(1, 1.0)
    before = counters.sample("tsdb_ruler_repaired_steps_total")
    for second in range(60):
        run.clock.advance(1_000)
        run.give(run.clock.now_ms() - 25_000, float(second))
        run.run_steps()
    # A sample reaches the two or three steps from its time on to the last evaluated one.
    assert 6 * 2 <= counters.sample("tsdb_ruler_repaired_steps_total") - before <= 6 * 3
