"""Ruler evaluates the groups of rule files, each time once all samples of that time are readable, never short.

An evaluation that must wait changes nothing and is repeated. A result counts once the log has it and readers show it;
only then comes the next time of the group. One thread does all of it, one step of each group after another, so that a
slow group does not stop the others.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.stale import STALE
from tsdb.model.window import ceil_to
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge, histogram
from tsdb.ops.periodic import Periodic
from tsdb.promql.evaluate.query import QueryOptions, instant_query
from tsdb.promql.evaluate.storage import Storage
from tsdb.rules.alerts import Labels
from tsdb.rules.files import RuleFile
from tsdb.rules.groups import RuleSample, RuleSurroundings, VectorSample, evaluate_group
from tsdb.rules.memory import MemoryStorage, OverlaidStorage
from tsdb.rules.notifier import Notifier
from tsdb.rules.restart import last_evaluated, restored_state
from tsdb.rules.schedule import RuleSchedule, ScheduledGroup
from tsdb.rules.vectors import vector_of
from tsdb.selector.selectors import METRIC_NAME

LOOK_S = 0.2  # Time between two looks while a time is not complete yet.
IDLE_S = 5.0  # Longest time until a look, for files that change.
# A process that was away longer starts at this time before now; older steps are counted as skipped.
CATCH_UP_MS = 60 * 60 * 1000
EVALUATED = "tsdb_rule_group_evaluated"  # Series that the ruler writes with each evaluation of a group.
GROUP_LABEL = "rule_group"

REASONS = ("incomplete", "unavailable", "write")

_evaluations = counter("tsdb_ruler_evaluations_total", "Evaluations of rules.")
_failures = counter(
    "tsdb_ruler_evaluation_failures_total", "Evaluations of rules that failed; the rule kept its state."
)
_seconds = histogram("tsdb_ruler_group_duration_seconds", "Evaluation of a group at one time, without its writes.")
_samples = counter("tsdb_ruler_samples_total", "Samples of rules that the log has taken, stale markers included.")
_refused = counter(
    "tsdb_ruler_refused_samples_total", "Samples of rules that the write path refused, for their labels."
)
_waits = counter(
    "tsdb_ruler_waits_total",
    "Steps of groups that had to wait. incomplete: a partition has not passed the time; unavailable: a read; write: the"
    " log.",
    "reason",
    REASONS,
)
_skipped = counter(
    "tsdb_ruler_skipped_steps_total", "Steps that were not evaluated, because the ruler was away longer."
)
_through = gauge(
    "tsdb_ruler_evaluated_through_timestamp_seconds",
    "Time up to which all groups are evaluated; 0 before the first evaluation.",
)
_groups = gauge("tsdb_ruler_groups", "Groups of the rule files.")
_rules = gauge("tsdb_ruler_rules", "Rules of the rule files.")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RuleRead:
    """One query of a rule. options: with the bounds of its time and memory."""

    storage: Storage
    options: QueryOptions


@dataclass(frozen=True, slots=True)
class RulerPorts:
    """The process around a ruler. files: the rule files as they are now. open_read: opens one read. missing: why not
    all samples up to a time are readable, "" when they are.

    write: writes samples into the log. It returns the number of refused ones, once readers show the others, and raises
    Unavailable and Overloaded. notifier: sends the alerts; None: nothing does.
    """

    files: Callable[[], Sequence[RuleFile]]
    open_read: Callable[[], AbstractContextManager[RuleRead]]
    missing: Callable[[int], str]
    write: Callable[[Sequence[RuleSample]], int]
    clock: Clock
    notifier: Notifier | None = None


@dataclass(frozen=True, slots=True)
class RulerOptions:
    """query_offset_ms: default of the groups. grace_ms: no time is complete earlier after it, so nothing looks before.
    series_max: series of one expression. external_url: for templates."""

    query_offset_ms: int = 0
    grace_ms: int = 0
    series_max: int = 100_000
    external_url: str = ""
    external_labels: dict[str, str] = field(default_factory=dict)


class Ruler(Periodic):
    """A component with one thread. `groups` may be read by any thread."""

    def __init__(self, ports: RulerPorts, options: RulerOptions) -> None:
        super().__init__("ruler", IDLE_S, self.step)
        self._ports = ports
        self._options = options
        self._started_ms = ports.clock.now_ms()
        self._files: tuple[RuleFile, ...] = ()
        self._schedule = RuleSchedule()
        self._lock = threading.Lock()  # Guards the list below, which the API reads.
        self._shown: tuple[ScheduledGroup, ...] = ()

    @property
    def notifiers(self) -> list[Notifier]:
        """The component that sends its alerts, if there is one. It starts before the ruler."""
        return [] if self._ports.notifier is None else [self._ports.notifier]

    def is_going(self) -> bool:
        """Whether the ruler has not been closed."""
        return not self._closing.is_set()

    def groups(self) -> Sequence[ScheduledGroup]:
        """The groups, as of the last step."""
        with self._lock:
            return self._shown

    def step(self) -> float:
        """One step of each group that may go on. Returns the seconds until the next look."""
        self._reload()
        self._end_series()
        went_on = [self._step(one) for one in self._schedule.groups if not self._closing.is_set()]
        self._show()
        if any(went_on):
            return 0.0
        now_ms = self._ports.clock.now_ms()
        due_ms = min(map(self._due_ms, self._schedule.groups), default=math.inf)
        return min(max(LOOK_S, (due_ms - now_ms) / 1000), IDLE_S)

    def _due_ms(self, one: ScheduledGroup) -> int:
        """When the next time of a group may be complete, by the clock of this process."""
        if one.next_ms is None:
            return 0
        return max(one.next_ms, one.next_ms - self._offset_ms(one) + self._options.grace_ms)

    def _reload(self) -> None:
        files = tuple(self._ports.files())
        if [id(one) for one in files] == [id(one) for one in self._files]:
            return
        before = {one.group.key for one in self._schedule.groups}
        self._files = files
        self._schedule.renew(files)
        if self._ports.notifier is not None:
            for gone in before - {one.group.key for one in self._schedule.groups}:
                self._ports.notifier.remove(gone)
        _groups.set(len(self._schedule.groups))
        _rules.set(sum(file.rules for file in files))
        log.info("rule files taken", files=len(files), rules=sum(file.rules for file in files))

    def _step(self, one: ScheduledGroup) -> bool:
        """Evaluate a group at its next time, if it may. Returns whether it did."""
        try:
            if one.next_ms is None and not self._restore(one):
                return False
            assert one.next_ms is not None, "a restored group has a time"
            now_ms = self._ports.clock.now_ms()
            self._skip_old(one, now_ms)
            if self._due_ms(one) > now_ms or not one.may_evaluate():
                return False
            missing = self._ports.missing(one.next_ms - self._offset_ms(one))
            if missing:
                return self._wait(one, "incomplete", missing)
            self._evaluate(one, one.next_ms)
        except (Unavailable, Overloaded) as error:
            return self._wait(one, "unavailable", error.message)
        return True

    def _wait(self, one: ScheduledGroup, reason: str, text: str) -> bool:
        _waits.labels(reason).inc()
        one.waits_for = text
        return False

    def _skip_old(self, one: ScheduledGroup, now_ms: int) -> None:
        assert one.next_ms is not None, "a restored group has a time"
        first_ms = ceil_to(now_ms - CATCH_UP_MS, one.group.interval_ms)
        if one.next_ms < first_ms:
            steps = (first_ms - one.next_ms) // one.group.interval_ms
            _skipped.inc(steps)
            log.warning("steps of a rule group skipped", group=one.group.key, steps=steps)
            one.next_ms = first_ms

    def _restore(self, one: ScheduledGroup) -> bool:
        """Take the state of an earlier process from the series that it wrote."""
        now_ms, group = self._ports.clock.now_ms(), one.group
        if any(other.next_ms is None for other in one.needs):
            return False
        # The log has all samples of the earlier process since before the start of this one.
        missing = self._ports.missing(self._started_ms)
        if missing:
            return self._wait(one, "incomplete", missing)
        offset_ms = self._offset_ms(one)
        with self._ports.open_read() as read:
            marker = {METRIC_NAME: EVALUATED, GROUP_LABEL: group.key}
            last_ms = last_evaluated(read.storage, marker, now_ms - CATCH_UP_MS, now_ms)
            if last_ms is None:
                one.next_ms = ceil_to(now_ms, group.interval_ms)
                return True
            last_ms += offset_ms
            surroundings = self._surroundings(MemoryStorage(), lambda samples: None)
            one.state = restored_state(group, last_ms, offset_ms, read.storage, surroundings)
        one.next_ms = ceil_to(last_ms + 1, group.interval_ms)
        log.info("rule group restored", group=group.key, last_ms=last_ms)
        return True

    def _evaluate(self, one: ScheduledGroup, at_ms: int) -> None:
        written: list[RuleSample] = []
        memory = MemoryStorage()

        def write(samples: Sequence[RuleSample]) -> None:
            written.extend(samples)
            for sample in samples:
                memory.add(sample.labels, [(sample.ts_ms, sample.value)])

        clock, offset_ms = self._ports.clock, self._offset_ms(one)
        begin = clock.monotonic()
        surroundings = self._surroundings(memory, write)
        state = evaluate_group(one.group, one.state, at_ms, offset_ms, surroundings)
        one.seconds = clock.monotonic() - begin
        marker: Labels = ((METRIC_NAME, EVALUATED), (GROUP_LABEL, one.group.key))
        # A separate request: the marker says that all samples are in the log, whatever their partitions.
        self._write(written)
        self._write([RuleSample(marker, at_ms - offset_ms, float(len(written)))])
        one.state, one.evaluated_ms, one.evaluated_at_ms = state, at_ms, clock.now_ms()
        one.next_ms, one.waits_for = at_ms + one.group.interval_ms, ""
        if self._ports.notifier is not None:
            self._ports.notifier.update(one)
        _seconds.observe(one.seconds)
        _evaluations.inc(len(state.rules))
        _failures.inc(sum(bool(rule.error) for rule in state.rules))

    def _write(self, samples: Sequence[RuleSample]) -> None:
        if not samples:
            return
        try:
            refused = self._ports.write(samples)
        except (Unavailable, Overloaded):
            _waits.labels("write").inc()
            raise
        _samples.inc(len(samples) - refused)
        _refused.inc(refused)

    def _end_series(self) -> None:
        """Write stale markers for the series of groups that are gone. They are tried again until the log has them."""
        for series, next_ms in list(self._schedule.ended):
            # The next time of a long interval may be further ahead than the gateway accepts.
            now_ms = self._ports.clock.now_ms()
            at_ms = now_ms if next_ms is None else min(next_ms, now_ms)
            try:
                self._write([RuleSample(labels, at_ms, STALE) for labels in sorted(series)])
            except TsdbError as error:
                log.warning("series of a removed rule group not ended yet", error=error.message)
                return
            self._schedule.ended.remove((series, next_ms))

    def _surroundings(self, newer: MemoryStorage, write: Callable[[Sequence[RuleSample]], None]) -> RuleSurroundings:
        """newer: samples that the log does not have yet."""

        def query(text: str, at_ms: int) -> list[VectorSample]:
            with self._ports.open_read() as read:
                result = instant_query(text, OverlaidStorage(read.storage, newer), at_ms, read.options)
                return vector_of(result, options.series_max)

        options = self._options
        return RuleSurroundings(
            query, write, options.external_labels, options.external_url, self._ports.clock.monotonic
        )

    def _offset_ms(self, one: ScheduledGroup) -> int:
        own_ms = one.group.query_offset_ms
        return self._options.query_offset_ms if own_ms is None else own_ms

    def _show(self) -> None:
        through_ms = min((one.evaluated_ms or 0 for one in self._schedule.groups), default=0)
        _through.set(through_ms / 1000)
        with self._lock:
            self._shown = tuple(replace(one) for one in self._schedule.groups)
