"""Ruler evaluates the groups of rule files, each time once all samples of that time are readable, never short.

An evaluation that must wait changes nothing and is repeated. A result counts once the log has it; only then comes the
next time of the group. Samples that come later than that are found in the log, and the steps that they can change are
evaluated again: results are a function of the samples, whenever they came. One thread does all of it, one step of each
group after another, so that a slow group does not stop the others; new steps come before repairs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.stale import STALE
from tsdb.model.window import ceil_to
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge, histogram
from tsdb.ops.periodic import Periodic
from tsdb.promql.evaluate.query import LOOKBACK_MS, QueryOptions, instant_query
from tsdb.promql.evaluate.storage import Storage
from tsdb.rules.files import AlertingRule, RuleFile, RuleGroup
from tsdb.rules.follower import Follower
from tsdb.rules.groups import RuleGroupState, RuleSample, RuleSurroundings, VectorSample, evaluate_group
from tsdb.rules.late import LateMarks, ReadLabels
from tsdb.rules.memory import MemoryStorage, OverlaidStorage
from tsdb.rules.notifier import Notifier
from tsdb.rules.placement import Partitions, RulePlacement
from tsdb.rules.repair import Repaired, RepairNote, RepairStep, StepRepair
from tsdb.rules.restart import evaluated_steps, restored_state
from tsdb.rules.schedule import RuleSchedule, ScheduledGroup
from tsdb.rules.selections import GroupSelections, GroupStretches, SelectionLabels
from tsdb.rules.shares import AllShares, Shares
from tsdb.rules.vectors import vector_of
from tsdb.selector.selectors import METRIC_NAME

LOOK_S = 0.2  # Time between two looks while a time is not complete yet.
IDLE_S = 5.0  # Longest time until a look, for files that change and samples that are late.
FOLLOW_S = 0.005  # Between two looks for own writes in the log.
OWN_WRITES_S = 2.0  # Longest wait until the log shows own writes; a group that reads them then waits for a next look.
# Time from a late sample to the repair of a group: its interval, because others come with it. A sender that is always
# late would otherwise mark the same steps again and again.
SETTLE_MIN_S, SETTLE_MAX_S = 1.0, 60.0
REPAIR_AGAIN_S = 5.0  # Time until the next repair after one that had to wait.
REPAIR_S = 1.0  # Time of repairs between two looks for new steps; one repair where steps were evaluated.
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
_short = counter(
    "tsdb_ruler_short_evaluations_total",
    "Steps of groups that were evaluated without some samples, after rules_wait_max_s; they are repaired.",
)
_skipped = counter(
    "tsdb_ruler_skipped_steps_total", "Steps that were not evaluated, because the ruler was away longer."
)
_repaired = counter("tsdb_ruler_repaired_steps_total", "Steps of groups that were evaluated again after late samples.")
_repaired_samples = counter(
    "tsdb_ruler_repaired_samples_total", "Samples that repairs changed in the log, stale markers included."
)
_repair_failures = counter(
    "tsdb_ruler_repair_failures_total", "Rules that failed in the repair of a step; what is stored stayed."
)
_corrections = counter("tsdb_ruler_corrections_total", "States of an alert at a step that repairs changed.")
_repairing = gauge("tsdb_ruler_repairs_waiting", "Steps of rules that are to be evaluated again.")
_through = gauge(
    "tsdb_ruler_evaluated_through_timestamp_seconds",
    "Time up to which all groups are evaluated; 0 before the first evaluation.",
)
_groups = gauge("tsdb_ruler_groups", "Groups of the rule files that this ruler evaluates.")
_rules = gauge("tsdb_ruler_rules", "Rules of the groups that this ruler evaluates.")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RuleRead:
    """One query of a rule. options: with the bounds of its time and memory."""

    storage: Storage
    options: QueryOptions


@dataclass(frozen=True, slots=True)
class WrittenResults:
    """refused: number of samples that the write path refused. series_ids: ids of the series of
    all samples. last_records: the last record of them in each partition."""

    refused: int
    series_ids: Sequence[int]
    last_records: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RulerPorts:
    """The process around a ruler. files: the rule files as they are now. open_read: opens one read of some partitions
    that contains these records, by partition; None: whatever is there. missing: why not all samples of some partitions
    up to a time are readable, "" when they are. write: writes samples into the log; raises Unavailable and Overloaded.

    follower: reads the log. labels: reads labels of series. shares: groups that are evaluated here. notifier: sends the
    alerts; None: nothing does. placement: partitions of series and groups; None: not known.
    """

    files: Callable[[], Sequence[RuleFile]]
    open_read: Callable[[Mapping[int, int] | None, Partitions], AbstractContextManager[RuleRead]]
    missing: Callable[[int, Partitions], str]
    write: Callable[[Sequence[RuleSample]], WrittenResults]
    follower: Follower
    labels: ReadLabels
    clock: Clock
    shares: Shares = field(default_factory=AllShares)
    notifier: Notifier | None = None
    placement: RulePlacement | None = None


@dataclass(frozen=True, slots=True)
class RulerOptions:
    """query_offset_ms: default of the groups. grace_ms: no time is complete earlier after it, so nothing looks before.
    series_max: series of one expression. repair_ms: steps older than this are not evaluated again. lookback_ms: as for
    queries. wait_max_ms: after this time a step is evaluated without what is missing; None: never. external_url: for
    templates."""

    query_offset_ms: int = 0
    grace_ms: int = 0
    series_max: int = 100_000
    repair_ms: int = 2 * 60 * 60 * 1000
    lookback_ms: int = LOOKBACK_MS
    wait_max_ms: int | None = None
    external_url: str = ""
    external_labels: dict[str, str] = field(default_factory=dict)


class Ruler(Periodic):
    """A component with one thread. `groups` may be read by any thread."""

    def __init__(self, ports: RulerPorts, options: RulerOptions) -> None:
        super().__init__("ruler", IDLE_S, self.step)
        self._ports = ports
        self._options = options
        self._files: tuple[RuleFile, ...] = ()
        self._schedule = RuleSchedule()
        if ports.placement is not None:
            self._schedule.partitions_of = ports.placement.of_group
        self._late = LateMarks(
            ports.follower, ports.labels, ports.clock, self._offset_ms, options.repair_ms, options.lookback_ms
        )
        self._stretches: dict[str, tuple[RuleGroup, GroupStretches]] = {}
        self._labels = SelectionLabels()
        self._follows = True  # Whether the last look at the log succeeded.
        self._repairs_from = 0.0  # Monotonic time of the next repair.
        self._restored: list[ScheduledGroup] = []  # Groups for which the log is still to be read again.
        self._lock = threading.Lock()  # Guards the lists below, which the API reads.
        self._shown: tuple[ScheduledGroup, ...] = ()
        self._others: tuple[RuleGroup, ...] | None = None

    @property
    def notifiers(self) -> list[Notifier]:
        """The component that sends its alerts, if there is one. It starts before the ruler."""
        return [] if self._ports.notifier is None else [self._ports.notifier]

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._late.close()
            self._ports.shares.close()

    def alertmanagers(self) -> list[str]:
        """Addresses to which it sends alerts."""
        return [url for notifier in self.notifiers for url in notifier.urls]

    def is_going(self) -> bool:
        """Whether the ruler has not been closed."""
        return not self._closing.is_set()

    def groups(self) -> Sequence[ScheduledGroup]:
        """The groups, as of the last step."""
        with self._lock:
            return self._shown

    def other_groups(self) -> Sequence[RuleGroup] | None:
        """The groups of its files that other rulers evaluate, as of the last step; None before the first one."""
        with self._lock:
            return self._others

    def step(self) -> float:
        """One step of each group that may go on, then repairs. Returns the seconds until the next look."""
        self._reload()
        self._share()
        self._end_series()
        went_on: list[bool] = []
        self._follows = self._follow()
        if self._follows or self._options.wait_max_ms is not None:
            went_on = [self._step(one) for one in self._own() if not self._closing.is_set()]
            if self._ports.clock.monotonic() >= self._repairs_from:
                went_on.append(self._repair(0.0 if any(went_on) else REPAIR_S))
        self._show()
        if any(went_on):
            return 0.0
        now_ms = self._ports.clock.now_ms()
        due_ms = min(map(self._due_ms, self._own()), default=math.inf)
        waits = any(not one.repairs.is_empty for one in self._own())
        return LOOK_S if waits else min(max(LOOK_S, (due_ms - now_ms) / 1000), IDLE_S)

    def _own(self) -> list[ScheduledGroup]:
        return [one for one in self._schedule.groups if one.owned_ms is not None]

    def _share(self) -> None:
        """Take and give up groups, as they are shared among rulers."""
        self._ports.shares.look()
        for one in self._schedule.groups:
            owns = self._ports.shares.owns(one.group.key)
            if owns is (one.owned_ms is not None):
                continue
            if not owns and self._ports.notifier is not None:
                self._ports.notifier.forget(one.group.key)
            one.reset(self._ports.clock.now_ms() if owns else None)
        self._restored = [one for one in self._restored if one.owned_ms is not None and one.next_ms is not None]
        _groups.set(len(self._own()))
        _rules.set(sum(len(one.group.rules) for one in self._own()))

    def _follow(self) -> bool:
        """Look at the records that have come. Returns whether evaluations may go on."""
        try:
            if self._restored:
                self._late.rewind(self._restored)
                self._restored = []
            self._late.follow()
        except (Unavailable, Overloaded) as error:
            _waits.labels("unavailable").inc()
            for one in self._own():
                one.waits_for = error.message
            return False
        return True

    def _follow_own(self, partitions: Partitions = None) -> bool:
        """Follow the log to the last own write of these partitions, so that groups that read it are not evaluated
        twice."""
        give_up_at = self._ports.clock.monotonic() + OWN_WRITES_S
        while True:
            self._late.follow()
            self._late.check(partitions)
            if self._late.has_seen_own(partitions):
                return True
            if self._ports.clock.monotonic() > give_up_at:
                return False
            self._closing.wait(FOLLOW_S)

    def _due_ms(self, one: ScheduledGroup) -> int:
        """When the next time of a group may be complete, by the clock of this process."""
        if one.next_ms is None:
            return 0
        return max(one.next_ms, one.next_ms - self._offset_ms(one.group) + self._options.grace_ms)

    def _reload(self) -> None:
        files = tuple(self._ports.files())
        if [id(one) for one in files] == [id(one) for one in self._files]:
            return
        before = {one.group.key for one in self._schedule.groups}
        self._files = files
        self._schedule.renew(files)
        self._stretches.clear()
        self._late.renew(self._schedule.groups)
        self._restored = [
            one for one in self._schedule.groups if one.group.key in {old.group.key for old in self._restored}
        ]
        if self._ports.notifier is not None:
            for gone in before - {one.group.key for one in self._schedule.groups}:
                self._ports.notifier.remove(gone)
        log.info("rule files taken", files=len(files), rules=sum(file.rules for file in files))

    def _step(self, one: ScheduledGroup) -> bool:
        """Evaluate a group at its next time, if it may. Returns whether it did."""
        try:
            if one.next_ms is None and not self._restore(one):
                return False
            assert one.next_ms is not None, "a restored group has a time"
            now_ms = self._ports.clock.now_ms()
            if any(one is other for other in self._restored):
                return self._follows  # The log is read again first.
            self._skip_old(one, now_ms)
            if self._due_ms(one) > now_ms or not self._needs_are_there(one, one.next_ms):
                return False
            missing = self._ports.missing(one.next_ms - self._offset_ms(one.group), one.partitions)
            waited_max = self._has_waited(one, now_ms)
            if missing and not waited_max:
                return self._wait(one, "incomplete", missing)
            if not waited_max:
                self._late.check(one.partitions)
            if not missing and one.needs and not self._follow_own(one.partitions):
                return self._wait(one, "incomplete", "the log does not show the records that the group reads yet")
            try:
                self._evaluate(one, one.next_ms, missing)
            except (Unavailable, Overloaded) as error:
                if missing or not waited_max:
                    raise
                self._evaluate(one, one.next_ms, error.message)
        except (Unavailable, Overloaded) as error:
            return self._wait(one, "unavailable", error.message)
        return True

    def _has_waited(self, one: ScheduledGroup, now_ms: int) -> bool:
        """Whether a group has waited so long that it is evaluated without some samples."""
        wait_max_ms = self._options.wait_max_ms
        return wait_max_ms is not None and now_ms - self._due_ms(one) > wait_max_ms

    def _needs_are_there(self, one: ScheduledGroup, at_ms: int) -> bool:
        """Whether the groups whose records it reads have been evaluated at this time, here or by other rulers."""
        for other in one.needs:
            if other.owned_ms is None and (other.next_ms is None or other.next_ms <= at_ms):
                self._look_at(other)
        return one.may_evaluate()

    def _look_at(self, other: ScheduledGroup) -> None:
        """Read how far another ruler has evaluated a group."""
        now_ms = self._ports.clock.now_ms()
        with self._open_read(self._of_marker(other.group)) as read:
            times, _ = evaluated_steps(read.storage, _marker(other.group), now_ms - CATCH_UP_MS, now_ms)
        if len(times):
            other.next_ms = int(times[-1]) + self._offset_ms(other.group) + other.group.interval_ms
            self._late.expect_all()  # Rules that read its records are evaluated after these.

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
        assert one.owned_ms is not None, "other groups are not evaluated here"
        # The log has all samples of the earlier process since before this one has the group.
        partitions = self._to_restore(one)
        missing = self._ports.missing(one.owned_ms, partitions)
        if missing:
            return self._wait(one, "incomplete", missing)
        for other in one.needs:
            if other.owned_ms is None and other.next_ms is None:
                self._look_at(other)
        if any(other.next_ms is None for other in one.needs):
            return self._wait(one, "incomplete", "groups whose records it reads are not evaluated yet")
        offset_ms = self._offset_ms(one.group)
        with self._open_read(partitions) as read:
            times, settled_s = evaluated_steps(read.storage, _marker(group), now_ms - CATCH_UP_MS, now_ms)
            if not len(times):
                one.first_ms = one.next_ms = ceil_to(now_ms, group.interval_ms)
                one.settled_ms = now_ms
                return True
            last_ms = int(times[-1]) + offset_ms
            surroundings = self._surroundings(MemoryStorage(), lambda samples: None, partitions=one.partitions)
            leftover = one.state.leftover
            one.state = replace(
                restored_state(group, last_ms, offset_ms, read.storage, surroundings), leftover=leftover
            )
        one.evaluated_ms, one.inherited_ms, one.next_ms = last_ms, last_ms, ceil_to(last_ms + 1, group.interval_ms)
        one.settled_ms = max(round(float(settled_s[-1]) * 1000), now_ms - self._options.repair_ms)
        self._restored.append(one)
        log.info("rule group restored", group=group.key, last_ms=last_ms, settled_ms=one.settled_ms)
        return True

    def _evaluate(self, one: ScheduledGroup, at_ms: int, missing: str) -> None:
        """Evaluate a group at a time. missing: the samples that are not there; "" when all are."""
        written: list[RuleSample] = []
        memory = MemoryStorage()

        def write(samples: Sequence[RuleSample]) -> None:
            written.extend(samples)
            for sample in samples:
                memory.add(sample.labels, [(sample.ts_ms, sample.value)])

        clock, offset_ms = self._ports.clock, self._offset_ms(one.group)
        begin = clock.monotonic()
        selections = GroupSelections(self._stretches_of(one.group), at_ms - offset_ms, self._labels)
        surroundings = self._surroundings(memory, write, selections, whole=not missing, partitions=one.partitions)
        state = evaluate_group(one.group, one.state, at_ms, offset_ms, surroundings)
        one.seconds = clock.monotonic() - begin
        settled_ms = self._late.settled_ms()
        if settled_ms is not None and one.repairs.is_empty:
            one.settled_ms = max(one.settled_ms, settled_ms)
        is_unsure, one.is_unsure = one.is_unsure, True
        self._write(written, one.group.key)
        # A separate request: the marker says that all samples are in the log, whatever their partitions.
        marker = tuple(_marker(one.group).items())
        self._write([RuleSample(marker, at_ms - offset_ms, one.settled_ms / 1000)])
        one.state, one.evaluated_ms, one.evaluated_at_ms = state, at_ms, clock.now_ms()
        one.next_ms, one.waits_for, one.is_unsure = at_ms + one.group.interval_ms, "", False
        if missing:
            _short.inc()
            log.warning("rule group evaluated without some samples", group=one.group.key, at_ms=at_ms, missing=missing)
        # An attempt before may have left samples of other values, which rules of the group have read.
        if is_unsure or missing:
            for number in range(len(one.group.rules)):
                one.repairs.add(number, [at_ms])
        if self._ports.notifier is not None:
            self._ports.notifier.update(one)
        _seconds.observe(one.seconds)
        _evaluations.inc(len(state.rules))
        _failures.inc(sum(bool(rule.error) for rule in state.rules))

    def _repair(self, budget_s: float) -> bool:
        """Repair the marked steps, first those that others read, for some time and at least one. Returns whether any
        was repaired."""
        clock, began = self._ports.clock, self._ports.clock.monotonic()
        found = False
        for one in self._schedule.groups:
            since = one.repairs.since
            settle_s = min(max(SETTLE_MIN_S, one.group.interval_ms / 1000), SETTLE_MAX_S)
            if one.repairs.is_empty or (since is not None and began - since < settle_s):
                continue
            try:
                if one.needs and not self._follow_own():
                    return found
                while not one.repairs.is_empty:
                    self._repair_step(one, one.repairs.first_ms)
                    found = True
                    if self._closing.is_set() or clock.monotonic() - began >= budget_s:
                        return True
            except (Unavailable, Overloaded) as error:
                # A read of partitions that lag takes its whole timeout, for which new steps of all groups wait.
                self._repairs_from = clock.monotonic() + REPAIR_AGAIN_S
                self._wait(one, "unavailable", error.message)
                return found
        return found

    def _repair_step(self, one: ScheduledGroup, at_ms: int) -> None:
        group, offset_ms, through_ms = one.group, self._offset_ms(one.group), one.evaluated_ms
        if through_ms is None or at_ms > through_ms:
            one.repairs.done(at_ms)
            return
        ts_ms = at_ms - offset_ms
        with self._open_read() as read:
            times, _ = evaluated_steps(read.storage, _marker(group), ts_ms - CATCH_UP_MS - group.interval_ms, ts_ms)
            if not len(times) or times[-1] != ts_ms:
                one.repairs.done(at_ms)  # The ruler never evaluated this step.
                return
            before_ms = int(times[-2]) + offset_ms if len(times) > 1 else None
            step = RepairStep(
                group,
                at_ms,
                offset_ms,
                before_ms,
                through_ms,
                one.inherited_ms,
                lambda number: self._late.sharing(one, number, at_ms),
            )

            def query(text: str, storage: Storage, at_ms: int) -> Sequence[VectorSample]:
                result = instant_query(text, storage, at_ms, read.options)
                return vector_of(result, self._options.series_max)

            repair = StepRepair(
                step, read.storage, query, self._surroundings(MemoryStorage(), lambda _: None), one.state.rules
            )
            for number in range(len(group.rules)):
                if at_ms in one.repairs.steps.get(number, ()):
                    changed = repair.repair(number, one.repairs.folds.get(number))
                    self._late.mark_dependents(one, number, at_ms, changed)
        try:
            self._write(repair.done.samples, group.key)
        except (Unavailable, Overloaded):
            one.repairs.write_failed()
            raise
        self._take_repaired(one, at_ms, repair.done)

    def _take_repaired(self, one: ScheduledGroup, at_ms: int, done: Repaired) -> None:
        repairs, rules = one.repairs, list(one.state.rules)
        for number in done.changed:
            repairs.folds.pop(number, None)
        repairs.folds.update(done.folds)
        repairs.done(at_ms)
        for number, next_ms in done.further.items():
            repairs.add(number, [next_ms])
        now_ms = self._ports.clock.now_ms()
        for number, notes in done.notes.items():
            for labels, was, now in notes:
                repairs.note(number, RepairNote(labels, was, now, at_ms, at_ms, now_ms))
                _corrections.inc()
                log.info("alert corrected", group=one.group.key, alert=dict(labels), was=was, now=now, at_ms=at_ms)
        for number, error in done.errors.items():
            log.warning("rule failed in a repair", group=one.group.key, rule=number, at_ms=at_ms, error=error)
        _repaired.inc()
        _repaired_samples.inc(len(done.samples))
        _repair_failures.inc(len(done.errors))
        if done.states:
            for number, state in done.states.items():
                rules[number] = state
            one.state = RuleGroupState(tuple(rules), one.state.leftover)
            if self._ports.notifier is not None:
                self._ports.notifier.update(one)

    def _write(self, samples: Sequence[RuleSample], group: str = "") -> None:
        if not samples:
            return
        try:
            written = self._ports.write(samples)
        except (Unavailable, Overloaded):
            _waits.labels("write").inc()
            raise
        self._late.wrote(group, samples, written.series_ids, written.last_records)
        _samples.inc(len(samples) - written.refused)
        _refused.inc(written.refused)

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

    def _surroundings(
        self,
        newer: MemoryStorage,
        write: Callable[[Sequence[RuleSample]], None],
        selections: GroupSelections | None = None,
        *,
        whole: bool = True,
        partitions: Partitions = None,
    ) -> RuleSurroundings:
        """newer: samples that the log does not have yet. selections: those that all queries share. whole: whether reads
        must have all samples. partitions: those that queries read."""

        def query(text: str, at_ms: int) -> list[VectorSample]:
            with self._open_read(partitions, whole=whole) as read:
                stored = read.storage if selections is None else selections.over(read.storage)
                result = instant_query(text, OverlaidStorage(stored, newer), at_ms, read.options)
                return vector_of(result, options.series_max)

        options = self._options
        return RuleSurroundings(
            query, write, options.external_labels, options.external_url, self._ports.clock.monotonic
        )

    def _open_read(self, partitions: Partitions = None, *, whole: bool = True) -> AbstractContextManager[RuleRead]:
        return self._ports.open_read(self._late.after(partitions) if whole else None, partitions)

    def _of_marker(self, group: RuleGroup) -> Partitions:
        placement = self._ports.placement
        return None if placement is None else frozenset((placement.of_series(tuple(sorted(_marker(group).items()))),))

    def _to_restore(self, one: ScheduledGroup) -> Partitions:
        """The partitions whose samples say where an earlier process was. Any may have series of alerts."""
        of_marker, alerts = self._of_marker(one.group), any(isinstance(rule, AlertingRule) for rule in one.group.rules)
        return None if alerts or one.partitions is None or of_marker is None else one.partitions | of_marker

    def _stretches_of(self, group: RuleGroup) -> GroupStretches:
        known = self._stretches.get(group.key)
        if known is None or known[0] is not group:
            known = self._stretches[group.key] = group, GroupStretches.of(group, self._options.lookback_ms)
        return known[1]

    def _offset_ms(self, group: RuleGroup) -> int:
        own_ms = group.query_offset_ms
        return self._options.query_offset_ms if own_ms is None else own_ms

    def _show(self) -> None:
        own = self._own()
        through_ms = min((one.evaluated_ms or 0 for one in own), default=0)
        _through.set(through_ms / 1000)
        for one in own:
            one.repairing = len(one.repairs)
            one.due_ms = None if one.next_ms is None else self._due_ms(one)
        _repairing.set(sum(one.repairing for one in own))
        with self._lock:
            self._shown = tuple(replace(one) for one in own)
            self._others = tuple(one.group for one in self._schedule.groups if one.owned_ms is None)


def _marker(group: RuleGroup) -> dict[str, str]:
    """Labels of the series that says at which times a group was evaluated. Its value is settled_ms, in seconds."""
    return {METRIC_NAME: EVALUATED, GROUP_LABEL: group.key}
