"""Repair evaluates a step of a group again after late samples, and writes only what differs from the stored samples.

The value of a rule at a step is a function of all samples before it in the order of evaluation: those of later rules of
the group at the same time do not count. A result that is gone is taken back with a stale marker. Alerts are folded
again from the step before, on to where the stored series agree for as long as an alert may be kept firing. All state
comes from the stored series, so a repair may begin in any process, stop anywhere, and be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tsdb.model.errors import TsdbError
from tsdb.model.labels import parse_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.model.stale import STALE, STALE_BITS
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.rules.alerts import ALERTS, ALERTS_FOR_STATE, STATE_LABEL, AlertState, Labels
from tsdb.rules.files import AlertingRule, RecordingRule, Rule, RuleGroup
from tsdb.rules.groups import (
    RuleSample,
    RuleState,
    RuleSurroundings,
    VectorSample,
    comes_later,
    conditions,
    evaluate_rule,
    recorded,
)
from tsdb.rules.memory import MemoryStorage, OverlaidStorage, label_filter
from tsdb.rules.reach import outputs_of
from tsdb.rules.restart import restored_rule
from tsdb.rules.values import RuleValue, ValueBits, histogram_bits, value_bits
from tsdb.selector.selectors import METRIC_NAME

NOTES_MAX = 20  # Newest notes of a rule.
INACTIVE = AlertState.INACTIVE.value


@dataclass(frozen=True, slots=True)
class RepairNote:
    """Late samples changed the state of an alert at the steps from_ms to through_ms. was, now: inactive, pending or
    firing. noted_ms: when, by this process's clock."""

    labels: Labels
    was: str
    now: str
    from_ms: int
    through_ms: int
    noted_ms: int


@dataclass(frozen=True, slots=True)
class Fold:
    """Alerts of a rule after its repair at at_ms. quiet: steps since the last one whose stored samples differed."""

    at_ms: int
    state: RuleState
    quiet: int = 0


@dataclass(slots=True)
class GroupRepairs:
    """Steps of a group that are to be evaluated again, by the number of the rule. folds: folds of alerting rules whose
    repair goes on at the next step. notes: by rule, the newest last; never changed in place, because other threads read
    them. since: monotonic time of the first mark."""

    steps: dict[int, set[int]] = field(default_factory=dict)
    folds: dict[int, Fold] = field(default_factory=dict)
    notes: dict[int, tuple[RepairNote, ...]] = field(default_factory=dict)
    since: float | None = None

    def add(self, rule: int, steps: Iterable[int]) -> None:
        """Mark steps of a rule."""
        self.steps.setdefault(rule, set()).update(steps)

    @property
    def is_empty(self) -> bool:
        """Whether no step is marked."""
        return not self.steps

    @property
    def first_ms(self) -> int:
        """The first marked step."""
        return min(map(min, self.steps.values()))

    def __len__(self) -> int:
        return sum(map(len, self.steps.values()))

    def done(self, at_ms: int) -> None:
        """Forget the marks of a step."""
        for rule in list(self.steps):
            self.steps[rule].discard(at_ms)
            if not self.steps[rule]:
                del self.steps[rule]
        if not self.steps:
            self.since = None

    def write_failed(self) -> None:
        """The log may have the samples of a repair that comes again, and then nothing differs: folds go on anyway."""
        self.folds = {rule: replace(fold, quiet=-1) for rule, fold in self.folds.items()}

    def note(self, rule: int, note: RepairNote) -> None:
        """Add a note to a rule, or to its last note of the same change."""
        known = self.notes.get(rule, ())
        for at, one in enumerate(known):
            is_same = (one.labels, one.was, one.now) == (note.labels, note.was, note.now)
            if is_same and one.through_ms < note.from_ms:
                joined = replace(one, through_ms=note.through_ms, noted_ms=note.noted_ms)
                self.notes = {**self.notes, rule: (*known[:at], *known[at + 1 :], joined)}
                return
        self.notes = {**self.notes, rule: (*known, note)[-NOTES_MAX:]}


@dataclass(frozen=True, slots=True)
class RepairStep:
    """A step of a group. before_ms: the evaluated step before, None without one. through_ms: its last evaluated step.
    inherited_ms: the last step of an earlier process, which may have ended in the middle of its repairs.

    others: other rules, by the number of a rule, that are evaluated at this time too and may write series of it; with
    their numbers in this group, or None.
    """

    group: RuleGroup
    at_ms: int
    offset_ms: int
    before_ms: int | None
    through_ms: int
    inherited_ms: int
    others: Callable[[int], Sequence[tuple[Rule, int | None]]] = lambda number: ()

    @property
    def ts_ms(self) -> int:
        """Time of the samples."""
        return self.at_ms - self.offset_ms


@dataclass(slots=True)
class Repaired:
    """samples: to write. states: the states of rules whose last evaluated step this was. changed: samples by rule.
    errors: by rule. notes: states of alerts before and after, by rule. further: steps to repair next, by rule. folds:
    see GroupRepairs."""

    samples: list[RuleSample] = field(default_factory=list)
    states: dict[int, RuleState] = field(default_factory=dict)
    changed: dict[int, list[RuleSample]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    notes: dict[int, list[tuple[Labels, str, str]]] = field(default_factory=dict)
    further: dict[int, int] = field(default_factory=dict)
    folds: dict[int, Fold] = field(default_factory=dict)


class StepRepair:
    """Repairs one step of a group, rule by rule, from a storage. The caller writes the samples.

    query: the vector of an expression over a storage; raises TsdbError.
    """

    def __init__(
        self,
        step: RepairStep,
        storage: Storage,
        query: Callable[[str, Storage, int], Sequence[VectorSample]],
        surroundings: RuleSurroundings,
        live: Sequence[RuleState],
    ) -> None:
        self._step = step
        self._storage = storage
        self._query = query
        self._surroundings = surroundings
        self._live = live
        self._newer = MemoryStorage()  # Results of rules before, which the log does not have yet.
        self.done = Repaired()

    def repair(self, number: int, fold: Fold | None) -> list[RuleSample]:
        """Repair a rule. Returns the samples that change. Raises the errors that concern a later attempt alone."""
        rule = self._step.group.rules[number]
        try:
            if isinstance(rule, AlertingRule):
                changed = self._alerting(number, rule, fold)
            else:
                changed = self._recording(number, rule)
        except TsdbError as error:
            if comes_later(error):
                raise
            # The stored samples stay: a step without a value has nothing to replace them.
            self.done.errors[number] = error.message
            return []
        for sample in changed:
            self._newer.add(sample.labels, [(sample.ts_ms, sample.value)])
        self.done.samples += changed
        self.done.changed[number] = changed
        return changed

    def _recording(self, number: int, rule: RecordingRule) -> list[RuleSample]:
        step, group = self._step, self._step.group
        at_ms, ts_ms = step.at_ms, step.ts_ms
        before = self._stored_before(rule)
        state, series = evaluate_rule(rule, group.limit, before, at_ms, ts_ms, self._seen_by(number))
        stored = self._stored(rule, ts_ms, ts_ms + group.interval_ms)
        here = {labels: values[ts_ms] for labels, values in stored.items() if ts_ms in values}
        changed = self._differences(number, series, before.series - series.keys(), here)
        if at_ms >= step.through_ms:
            self.done.states[number] = state
        elif any(ts_ms + group.interval_ms not in stored.get(labels, {}) for labels in series):
            self.done.further[number] = at_ms + group.interval_ms  # A series that is new here may end there.
        return changed

    def _alerting(self, number: int, rule: AlertingRule, fold: Fold | None) -> list[RuleSample]:
        step, group = self._step, self._step.group
        before = RuleState()
        if fold is not None and fold.at_ms == step.before_ms:
            before = fold.state
        elif step.before_ms is not None:
            surroundings = self._seen_by(number)
            before = restored_rule(rule, group, step.before_ms, step.offset_ms, self._storage, surroundings)
        state, series = evaluate_rule(rule, group.limit, before, step.at_ms, step.ts_ms, self._seen_by(number))
        stored = self._stored(rule, step.ts_ms, step.ts_ms)
        here = {labels: values[step.ts_ms] for labels, values in stored.items()}
        changed = self._differences(number, series, before.series - series.keys(), here)
        self.done.notes[number] = _changes(here, series, changed)
        quiet = 0 if changed or fold is None or fold.at_ms != step.before_ms else fold.quiet + 1
        if step.at_ms >= step.through_ms:
            self.done.states[number] = _with_live(state, self._live[number], step.at_ms)
        elif quiet <= rule.keep_firing_for_ms // group.interval_ms + 1 or step.at_ms < step.inherited_ms:
            self.done.further[number] = step.at_ms + group.interval_ms
            self.done.folds[number] = Fold(step.at_ms, state, quiet)
        return changed

    def _differences(
        self,
        number: int,
        series: Mapping[Labels, RuleValue],
        gone: Iterable[Labels],
        stored: Mapping[Labels, ValueBits],
    ) -> list[RuleSample]:
        """The samples that make the stored ones of this time those of `series`. stored: bits of values."""
        ts_ms = self._step.ts_ms
        changed = [
            RuleSample(labels, ts_ms, value)
            for labels, value in series.items()
            if stored.get(labels) != value_bits(value)
        ]
        extra = {labels for labels, bits in stored.items() if bits != STALE_BITS and labels not in series}
        if extra:
            extra -= self._of_others(number)
        ended = extra | {labels for labels in gone if labels not in stored}
        return changed + [RuleSample(labels, ts_ms, STALE) for labels in sorted(ended)]

    def _of_others(self, number: int) -> set[Labels]:
        """Series that other rules write at this time."""
        found: set[Labels] = set()
        for other, number_here in self._step.others(number):
            surroundings = self._seen_by(number_here)
            if isinstance(other, AlertingRule):
                held = conditions(other, self._step.ts_ms, surroundings)
                for labels in held:
                    found |= {_alert_series(labels, state) for state in ("", "pending", "firing")}
            else:
                found |= recorded(other, surroundings.query(other.query.text, self._step.ts_ms)).keys()
        return found

    def _stored_before(self, rule: RecordingRule) -> RuleState:
        if self._step.before_ms is None:
            return RuleState()
        ts_ms = self._step.before_ms - self._step.offset_ms
        stored = self._stored(rule, ts_ms, ts_ms)
        return RuleState(frozenset(labels for labels, values in stored.items() if values[ts_ms] != STALE_BITS))

    def _stored(self, rule: Rule, start_ms: int, end_ms: int) -> dict[Labels, dict[int, ValueBits]]:
        """Stored samples of the rule's series: bits of values by time. Those of rules before this one count too."""
        storage = OverlaidStorage(self._storage, self._newer)
        found: dict[Labels, dict[int, ValueBits]] = {}
        for output in outputs_of(rule):
            found.update(_samples(storage.select(output.matchers, start_ms, end_ms)))
        return found

    def _seen_by(self, number: int | None) -> RuleSurroundings:
        """Reads of a rule at a time, without the series of itself and of later rules there. None: with all."""
        rules = () if number is None else self._step.group.rules[number:]
        outputs = [output.matchers for rule in rules for output in outputs_of(rule)]

        def query(text: str, at_ms: int) -> Sequence[VectorSample]:
            hidden = HidingStorage(self._storage, outputs, at_ms) if outputs else self._storage
            return self._query(text, OverlaidStorage(hidden, self._newer), at_ms)

        return replace(self._surroundings, query=query, write=lambda samples: None)


class HidingStorage:
    """Implements Storage without the samples at one time of the series that any of some selectors match. Each selector
    begins with a name."""

    def __init__(self, base: Storage, hidden: Sequence[Sequence[Matcher]], ts_ms: int) -> None:
        self._base = base
        self._hidden = hidden
        self._ts_ms = ts_ms

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        found = self._base.select(matchers, start_ms, end_ms)
        names = {one.value for one in matchers if one.name == METRIC_NAME and one.type is MatchType.EQUAL}
        holds = [label_filter(one) for one in self._hidden if not names or one[0].value in names]
        here = np.flatnonzero(found.ts_ms == self._ts_ms) if holds else np.empty(0, np.int64)
        if not len(here):
            return found
        rows = np.searchsorted(found.starts, here, side="right") - 1
        is_hidden = [any(hold(parse_labels(found.labels[row])) for hold in holds) for row in rows.tolist()]
        keeps = np.ones(len(found.ts_ms), np.bool_)
        keeps[here[is_hidden]] = False
        if keeps.all():
            return found
        starts = np.concatenate(([0], np.cumsum(keeps)))[found.starts]
        details = found.details and found.details.take(np.flatnonzero(keeps))
        return StoredSeries(found.labels, starts, found.ts_ms[keeps], found.values[keeps], found.warnings, details)


def _samples(stored: StoredSeries) -> dict[Labels, dict[int, ValueBits]]:
    """The bits of the values of each series by time."""
    times, starts = stored.ts_ms.tolist(), stored.starts.tolist()
    bits: list[ValueBits] = stored.values.view(np.int64).tolist()
    details = stored.details
    if details is not None and details.histograms is not None and details.histogram_of is not None:
        for row in np.flatnonzero(details.histogram_of >= 0).tolist():
            if bits[row] != STALE_BITS:
                bits[row] = histogram_bits(details.histograms, int(details.histogram_of[row]))
    return {
        parse_labels(labels): dict(zip(times[start:end], bits[start:end], strict=True))
        for labels, start, end in zip(stored.labels, starts[:-1], starts[1:], strict=True)
        if start < end
    }


def _alert_series(alert: Labels, state: str) -> Labels:
    metric = ((METRIC_NAME, ALERTS), (STATE_LABEL, state)) if state else ((METRIC_NAME, ALERTS_FOR_STATE),)
    return tuple(sorted((*alert, *metric)))


def _changes(
    stored: Mapping[Labels, ValueBits], series: Mapping[Labels, RuleValue], changed: Sequence[RuleSample]
) -> list[tuple[Labels, str, str]]:
    """Alerts whose state changed, with the state before and after."""
    was, now = _states(labels for labels, bits in stored.items() if bits != STALE_BITS), _states(series)
    touched = {_alert_of(sample.labels) for sample in changed}
    pairs = ((labels, was.get(labels, INACTIVE), now.get(labels, INACTIVE)) for labels in sorted(touched))
    return [(labels, before, after) for labels, before, after in pairs if before != after]


def _states(series: Iterable[Labels]) -> dict[Labels, str]:
    found = ((labels, dict(labels)) for labels in series)
    return {_alert_of(labels): pairs[STATE_LABEL] for labels, pairs in found if pairs[METRIC_NAME] == ALERTS}


def _alert_of(labels: Labels) -> Labels:
    return tuple(pair for pair in labels if pair[0] not in (METRIC_NAME, STATE_LABEL))


def _with_live(state: RuleState, live: RuleState, at_ms: int) -> RuleState:
    """The repaired state, with what only the live one knows: when alerts began to fire, and the resolved ones."""
    alerts = dict(state.alerts)
    for labels, known in live.alerts.items():
        alert = alerts.get(labels)
        if alert is None:
            if not known.is_active:
                alerts[labels] = known
        elif alert.fired_at_ms is not None and known.is_active and alert.active_at_ms == known.active_at_ms:
            alerts[labels] = replace(alert, fired_at_ms=known.fired_at_ms or alert.fired_at_ms)
    return replace(state, alerts=alerts, evaluated_at_ms=at_ms, seconds=live.seconds)
