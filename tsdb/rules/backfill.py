"""Backfill evaluates the rules of a component at all steps of a range, and gives the samples that a ruler would have
written and that the storage does not have.

An expression is evaluated at many steps at once, as a range query, whose values are those of instant queries. Steps for
which that fails are halved until the failing ones are found, because a rule fails at one step and not at the others.
Alerts are folded step by step, by the code of a ruler. So are groups whose rules read their own records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.labels import parse_labels
from tsdb.model.selector import Matcher
from tsdb.model.stale import STALE, STALE_BITS
from tsdb.model.window import ceil_to
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.query import DEFAULTS, QueryOptions, instant_query, range_query
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.tree import (
    Aggregation,
    Duration,
    DurationBinary,
    DurationCall,
    DurationParen,
    DurationUnary,
    MatrixSelector,
    NumberLiteral,
    StringLiteral,
    Subquery,
    VectorSelector,
    post_order,
)
from tsdb.rules.alerts import ALERTS_FOR_STATE, Labels, alert_series
from tsdb.rules.columns import ColumnStorage, ResultColumns, joined_columns
from tsdb.rules.dependencies import RuleComponent, may_read
from tsdb.rules.files import AlertingRule, RecordingRule, Rule, RuleGroup, RuleQuery
from tsdb.rules.groups import (
    SAME_LABELS,
    RuleError,
    RuleGroupState,
    RuleSample,
    RuleState,
    RuleSurroundings,
    VectorSample,
    evaluate_group,
)
from tsdb.rules.memory import MemoryStorage, OverlaidStorage, label_filter
from tsdb.rules.reach import RuleReach, outputs_of
from tsdb.rules.restart import restored_rule
from tsdb.rules.values import float_of
from tsdb.rules.vectors import checked_floats, native_histogram, too_many_series, vector_of
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import QueryError

OF_THE_RULE = (EvaluationError, QueryError, RuleError)
"""Errors of a rule at a step. All others are errors of the read, and end the backfill."""

SAMPLES_LIMIT = "samples_limit"  # Reason of a storage's Overloaded: a shorter range would be read.


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """query_offset_ms: default of the groups. series_max: series of one expression. The rest as for a ruler."""

    query: QueryOptions = DEFAULTS
    query_offset_ms: int = 0
    series_max: int = 100_000
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""


class NeedsEarlierStep(Exception):
    """A rule fails at the step before the first one, so its series there are known only from an earlier begin."""


@dataclass(slots=True)
class BackfillCounts:
    """evaluations: rules at steps, without those of a lead. failures: those that failed, by file, group and name
    of the rule; errors: a text of each. results: samples that the rules give, stale markers included."""

    evaluations: int = 0
    failures: dict[tuple[str, str, str], int] = field(default_factory=dict)
    errors: dict[tuple[str, str, str], str] = field(default_factory=dict)
    results: int = 0

    def add(self, other: BackfillCounts) -> None:
        """Add the counts of another component."""
        self.evaluations += other.evaluations
        self.results += other.results
        self.failures.update(other.failures)
        self.errors.update(other.errors)


@dataclass(slots=True)
class _RuleRun:
    """One rule. next_ms: its next step. first_ts_ms: time of its first sample. read: whether a rule reads its records.
    found: results since the last block. failed: times of its failures."""

    group: RuleGroup
    rule: Rule
    offset_ms: int
    lead_ms: int
    outputs: tuple[RuleReach, ...]
    is_read: bool
    is_shared: bool
    next_ms: int = 0
    first_ts_ms: int = 0
    state: RuleState = field(default_factory=RuleState)
    found: list[ResultColumns] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    @property
    def alone(self) -> RuleGroup:
        """A group of this rule alone. Annotations are left out: no sample has them."""
        rule = self.rule
        return replace(self.group, rules=(replace(rule, annotations={}) if isinstance(rule, AlertingRule) else rule,))

    def replaces(self, ts_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether this backfill decides about samples at these times, bool (n,)."""
        steps: NDArray[np.bool_] = (ts_ms >= self.first_ts_ms) & (
            (ts_ms + self.offset_ms) % self.group.interval_ms == 0
        )
        if self.failed:
            steps &= ~np.isin(ts_ms, np.array(self.failed, np.int64))
        return steps


class ComponentBackfill:
    """Used by one thread. Blocks follow each other from start_ms on; results are those of samples in
    [start_ms, end_ms of the block).

    storage: all samples but those of this backfill. run_start_ms: since when rules are evaluated; what is stored before
    stays, and their state then comes from it. start_ms: a later one begins with a lead, which a component that is
    sequential must not have.
    """

    def __init__(
        self, component: RuleComponent, storage: Storage, options: BackfillOptions, run_start_ms: int, start_ms: int
    ) -> None:
        """Raises NeedsEarlierStep, and what the storage raises."""
        assert start_ms == run_start_ms or not component.is_sequential, "a sequential component begins at the start"
        self._component = component
        self._options = options
        self._start_ms = self._through_ms = start_ms
        self._keep_ms = max((lead_ms for leads in component.leads_ms for lead_ms in leads), default=0)
        self.counts = BackfillCounts()
        self._runs = [
            [self._new_run(at, number, group, rule) for number, rule in enumerate(group.rules)]
            for at, group in enumerate(component.groups)
        ]
        self._all = [run for runs in self._runs for run in runs]
        self._records = ColumnStorage()  # Results that rules of the component read.
        self._stored = storage
        self._storage: Storage = OverlaidStorage(_Replaced(storage, self._all), self._records)
        for run in self._all:
            first_ts_ms = max(run_start_ms, start_ms - run.lead_ms)
            run.next_ms = ceil_to(first_ts_ms + run.offset_ms, run.group.interval_ms)
            run.first_ts_ms = run.next_ms - run.offset_ms
        for run in self._all:
            if run.first_ts_ms - run.group.interval_ms < run_start_ms:
                run.state = self._stored_state(run)
            else:
                run.state = self._state_before(run)

    def _new_run(self, at: int, number: int, group: RuleGroup, rule: Rule) -> _RuleRun:
        own_ms = group.query_offset_ms
        lead_ms, outputs = self._component.leads_ms[at][number], outputs_of(rule)
        offset_ms = self._options.query_offset_ms if own_ms is None else own_ms
        is_shared = (at, number) in self._component.sharing
        return _RuleRun(group, rule, offset_ms, lead_ms, outputs, lead_ms > 0, is_shared)

    def block(self, end_ms: int) -> ResultColumns:
        """Evaluate all steps with samples before end_ms. Returns the samples that differ from the stored ones, those
        that end series of which the rules give none included."""
        start_ms, self._through_ms = self._through_ms, end_ms
        self._records.forget(start_ms - self._keep_ms)
        for run in self._all:
            run.failed = [ts_ms for ts_ms in run.failed if ts_ms >= start_ms - self._keep_ms]
        for at, runs in enumerate(self._runs):
            if at in self._component.stepped:
                self._step_all(runs, end_ms)
            else:
                for run in runs:
                    self._evaluate(run, end_ms)
        found = joined_columns([part for run in self._all for part in run.found], start_ms)
        for run in self._all:
            run.found.clear()
            last, before = ((ms - 1 + run.offset_ms) // run.group.interval_ms for ms in (end_ms, start_ms))
            self.counts.evaluations += last - before
        self.counts.results += len(found)
        return self._changed(found, start_ms, end_ms)

    # The state at the begin.

    def _stored_state(self, run: _RuleRun) -> RuleState:
        """The stored results of the step before the first one, by a ruler or an earlier backfill."""
        before_ms = run.first_ts_ms - run.group.interval_ms
        stored: set[Labels] = set()
        for output in run.outputs:
            found = self._stored.select(output.matchers, before_ms, before_ms)
            is_stale = found.values.view(np.int64) == STALE_BITS
            stored |= {
                parse_labels(labels)
                for labels, start, end in zip(found.labels, found.starts[:-1], found.starts[1:], strict=True)
                if start < end and not is_stale[start]
            }
        if not stored:
            return RuleState()
        if isinstance(run.rule, AlertingRule):
            state = restored_rule(
                run.rule, run.group, before_ms + run.offset_ms, run.offset_ms, self._stored, self._surroundings()
            )
            alerts = {labels: one for labels, one in state.alerts.items() if _for_state(labels) in stored}
            return replace(state, alerts=alerts, series=frozenset(labels for labels, _ in alert_series(alerts)))
        if run.is_shared:
            stored &= self._evaluated(run, before_ms + run.offset_ms).series
        return RuleState(frozenset(stored))

    def _state_before(self, run: _RuleRun) -> RuleState:
        state = self._evaluated(run, run.next_ms - run.group.interval_ms)
        if state.error:
            raise NeedsEarlierStep
        return state

    def _evaluated(self, run: _RuleRun, at_ms: int) -> RuleState:
        before = RuleGroupState((RuleState(),))
        return evaluate_group(run.alone, before, at_ms, run.offset_ms, self._surroundings()).rules[0]

    def _surroundings(self, write: Callable[[Sequence[RuleSample]], None] = lambda _: None) -> RuleSurroundings:
        options = self._options
        return RuleSurroundings(
            lambda text, ts_ms: self._instant(text, ts_ms, self._storage),
            write,
            options.external_labels,
            options.external_url,
        )

    def _instant(self, text: str, ts_ms: int, storage: Storage) -> Sequence[VectorSample]:
        with _errors_of_reads():
            result = instant_query(text, storage, ts_ms, self._options.query)
            return checked_floats(vector_of(result, self._options.series_max))

    # Many steps at once.

    def _evaluate(self, run: _RuleRun, end_ms: int) -> None:
        interval_ms = run.group.interval_ms
        last_ms = (end_ms - 1 + run.offset_ms) // interval_ms * interval_ms
        first_ms, run.next_ms = run.next_ms, last_ms + interval_ms
        if first_ms > last_ms:
            return
        for piece in self._pieces(run, first_ms, last_ms):
            if isinstance(run.rule, AlertingRule):
                self._fold(run, piece)
            else:
                self._record(run, piece)

    def _pieces(self, run: _RuleRun, first_ms: int, last_ms: int) -> Iterator[_Piece]:
        interval_ms, query = run.group.interval_ms, run.rule.query
        pending = [(first_ms, last_ms)]
        while pending:
            start_ms, end_ms = pending.pop()
            steps = np.arange(start_ms, end_ms + 1, interval_ms, dtype=np.int64)
            try:
                if len(steps) > 1 and _is_of_one_step(query):
                    raise _Halve
                yield self._piece(run, steps)
                continue
            except OF_THE_RULE as error:
                if len(steps) == 1:
                    yield _Piece(steps, (), np.empty((0, 1)), np.empty((0, 1), np.bool_), {0: error})
                    continue
            except Overloaded as error:
                if error.reason != SAMPLES_LIMIT or len(steps) == 1:
                    raise
            except _Halve:
                pass
            middle_ms = int(steps[len(steps) // 2])
            pending += [(middle_ms, end_ms), (start_ms, middle_ms - interval_ms)]

    def _piece(self, run: _RuleRun, steps: NDArray[np.int64]) -> _Piece:
        text, options = run.rule.query.text, self._options.query
        first_ms, last_ms = int(steps[0]) - run.offset_ms, int(steps[-1]) - run.offset_ms
        if len(steps) == 1:
            result = instant_query(text, self._storage, first_ms, options)
            vector = checked_floats(vector_of(result, self._options.series_max))
            values = np.array([sample.value for sample in vector], np.float64).reshape(-1, 1)
            return _Piece(steps, [dict(sample.labels) for sample in vector], values, np.ones_like(values, np.bool_), {})
        value = range_query(text, self._storage, first_ms, last_ms, run.group.interval_ms, options).value
        assert isinstance(value, Block), "a range query has a block"
        failed: dict[int, TsdbError] = {}
        counts = value.present.sum(axis=0)
        for step in np.flatnonzero(counts > self._options.series_max).tolist():
            failed[step] = too_many_series(int(counts[step]), self._options.series_max)
        if value.native is not None:
            failed.update(
                (step, native_histogram()) for step in np.flatnonzero(value.is_histogram.any(axis=0)).tolist()
            )
        labels = [value.labels.row(row) for row in range(len(value))]
        return _Piece(steps, labels, value.values, value.present, failed)

    def _record(self, run: _RuleRun, piece: _Piece) -> None:
        """The results of a recording rule at the steps of a piece."""
        assert isinstance(run.rule, RecordingRule), "alerts are folded"
        own = {METRIC_NAME: run.rule.name, **run.rule.labels}
        rows: dict[Labels, int] = {}
        row_of = np.empty(len(piece.labels), np.int64)
        for at, one in enumerate(piece.labels):
            labels: Labels = tuple(sorted((name, value) for name, value in {**one, **own}.items() if value))
            row_of[at] = rows.setdefault(labels, len(rows))
        merges = len(rows) < len(piece.labels)  # Labels of the rule make series equal.
        counts = piece.present.astype(np.int32)
        if merges:
            counts = np.zeros((len(rows), len(piece.steps)), np.int32)
            np.add.at(counts, row_of, piece.present)
        failed = dict(piece.failed)
        for step in np.flatnonzero((counts > 1).any(axis=0)).tolist():
            failed.setdefault(step, RuleError(f"{SAME_LABELS} rule labels"))
        limit = run.group.limit
        if limit:
            series = counts.sum(axis=0)
            for step in np.flatnonzero(series > limit).tolist():
                failed.setdefault(step, RuleError(f"exceeded limit of {limit} with {series[step]} series"))
        self._note_failures(run, piece.steps, failed)
        succeeded = np.ones(len(piece.steps), np.bool_)
        succeeded[list(failed)] = False
        steps = piece.steps[succeeded]
        if not len(steps):
            return
        present = counts[:, succeeded] > 0
        values = piece.values[:, succeeded]  # A copy.
        if merges:
            at_rows, at_steps = np.nonzero(piece.present[:, succeeded])
            given, values = values, np.empty(present.shape)
            values[row_of[at_rows], at_steps] = given[at_rows, at_steps]
        ended = [labels for labels in sorted(run.state.series) if labels not in rows]
        before = np.array([labels in run.state.series for labels in rows], np.bool_)
        gone = np.column_stack((before, present[:, :-1])) & ~present
        values[gone] = STALE
        run.state = RuleState(frozenset(labels for labels, row in rows.items() if present[row, -1]))
        found = ResultColumns.of(list(rows), steps - run.offset_ms, values, present | gone)
        first_ms = steps[:1] - run.offset_ms
        shape = len(ended), 1
        self._take(run, found)
        self._take(run, ResultColumns.of(ended, first_ms, np.full(shape, STALE), np.ones(shape, np.bool_)))

    def _take(self, run: _RuleRun, found: ResultColumns) -> None:
        if len(found):
            run.found.append(found)
            if run.is_read:
                self._records.add(found)

    def _note_failures(self, run: _RuleRun, steps: NDArray[np.int64], failed: Mapping[int, TsdbError]) -> None:
        for step, error in sorted(failed.items()):
            self._failed(run, int(steps[step]) - run.offset_ms, error.message)

    def _failed(self, run: _RuleRun, ts_ms: int, text: str) -> None:
        run.failed.append(ts_ms)
        if ts_ms < self._start_ms:
            return
        key = run.group.file, run.group.name, run.rule.name
        self.counts.failures[key] = self.counts.failures.get(key, 0) + 1
        self.counts.errors.setdefault(key, text)

    # Step by step.

    def _fold(self, run: _RuleRun, piece: _Piece) -> None:
        """The results of an alerting rule, from the conditions of a piece."""
        written = _Written()
        some = np.flatnonzero(piece.present.any(axis=0))
        holds = set(some.tolist())
        for step, at_ms in enumerate(piece.steps.tolist()):
            if step not in holds and step not in piece.failed and not run.state.alerts and not run.state.series:
                continue  # Nothing is, was, or ends.
            self._step(run, at_ms, _given(self._surroundings(written), run.rule.query.text, at_ms, piece, step, run))
        self._take(run, written.columns())

    def _step(self, run: _RuleRun, at_ms: int, surroundings: RuleSurroundings) -> None:
        before = RuleGroupState((run.state,))
        run.state = evaluate_group(run.alone, before, at_ms, run.offset_ms, surroundings).rules[0]
        if run.state.error:
            self._failed(run, at_ms - run.offset_ms, run.state.error)
            run.state = replace(run.state, error="")

    def _step_all(self, runs: Sequence[_RuleRun], end_ms: int) -> None:
        """A group whose rules read their own records."""
        if not runs:
            return
        memory, written = MemoryStorage(), [_Written() for _ in runs]
        storage = OverlaidStorage(self._storage, memory)
        interval_ms, offset_ms, first_ms = runs[0].group.interval_ms, runs[0].offset_ms, runs[0].next_ms
        last_ms = (end_ms - 1 + offset_ms) // interval_ms * interval_ms
        for at_ms in range(first_ms, last_ms + 1, interval_ms):
            for run, of_run in zip(runs, written, strict=True):

                def write(samples: Sequence[RuleSample], of_run: _Written = of_run) -> None:
                    of_run(samples)
                    for sample in samples:
                        memory.add(sample.labels, [(sample.ts_ms, sample.value)])

                surroundings = self._surroundings(write)
                query = lambda text, ts_ms: self._instant(text, ts_ms, storage)  # noqa: E731
                self._step(run, at_ms, replace(surroundings, query=query))
        for run, of_run in zip(runs, written, strict=True):
            run.next_ms = last_ms + interval_ms
            self._take(run, of_run.columns())

    # Differences from the stored samples.

    def _changed(self, found: ResultColumns, start_ms: int, end_ms: int) -> ResultColumns:
        stored = self._stored_of_outputs(start_ms, end_ms)
        if not stored:
            return found
        parts: list[ResultColumns] = []
        known = {labels: row for row, labels in enumerate(found.labels)}
        for labels, ts_ms, values in found.rows():
            if labels in stored:
                there_ms, there = stored[labels]
                at = np.searchsorted(there_ms, ts_ms).clip(max=len(there_ms) - 1)
                is_equal = (there_ms[at] == ts_ms) & (there[at].view(np.int64) == values.view(np.int64))
                ts_ms, values = ts_ms[~is_equal], values[~is_equal]
            parts.append(ResultColumns.one(labels, ts_ms, values))
        for labels, (there_ms, there) in stored.items():
            matching = [run for run in self._all if any(_writes(output, labels) for output in run.outputs)]
            extra = there.view(np.int64) != STALE_BITS
            extra &= np.any([run.replaces(there_ms) for run in matching], axis=0)
            for run in matching:
                extra &= ~np.isin(there_ms, np.array(run.failed, np.int64))
            if labels in known:
                extra &= ~np.isin(there_ms, found.row(known[labels])[0])
            ended_ms = there_ms[extra]
            parts.append(ResultColumns.one(labels, ended_ms, np.full(len(ended_ms), STALE)))
        return joined_columns(parts, start_ms)

    def _stored_of_outputs(
        self, start_ms: int, end_ms: int
    ) -> dict[Labels, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        stored: dict[Labels, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        for matchers in dict.fromkeys(output.matchers for run in self._all for output in run.outputs):
            found = self._stored.select(matchers, start_ms, end_ms - 1)
            for row, labels in enumerate(found.labels):
                start, end = int(found.starts[row]), int(found.starts[row + 1])
                if start < end:
                    stored[parse_labels(labels)] = found.ts_ms[start:end], found.values[start:end]
        return stored


def begun(
    component: RuleComponent, storage: Storage, options: BackfillOptions, run_start_ms: int, start_ms: int
) -> ComponentBackfill:
    """A backfill whose next block begins at start_ms. Where a rule fails right before that, it begins further back."""
    lead_ms = max(group.interval_ms for group in component.groups)
    first_ms = start_ms
    while True:
        try:
            found = ComponentBackfill(component, storage, options, run_start_ms, first_ms)
        except NeedsEarlierStep:
            first_ms = max(run_start_ms, start_ms - lead_ms)
            lead_ms *= 2
            continue
        if first_ms < start_ms:
            found.block(start_ms)
            found.counts = BackfillCounts()
        return found


class _Halve(Exception):
    """The steps are evaluated in two halves."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """An expression at some steps. steps: int64 (n,), times of the evaluations. values, present: (series, n). failed:
    errors by number of the step."""

    steps: NDArray[np.int64]
    labels: Sequence[Mapping[str, str]]
    values: NDArray[np.float64]
    present: NDArray[np.bool_]
    failed: Mapping[int, TsdbError]


class _Written:
    """Collects the samples of a rule, step after step."""

    def __init__(self) -> None:
        self._samples: dict[Labels, tuple[list[int], list[float]]] = {}

    def __call__(self, samples: Iterable[RuleSample]) -> None:
        for sample in samples:
            times, values = self._samples.setdefault(sample.labels, ([], []))
            times.append(sample.ts_ms)
            values.append(float_of(sample.value))  # Histograms are refused before.

    def columns(self) -> ResultColumns:
        parts = [
            ResultColumns.one(labels, np.array(times, np.int64), np.array(values, np.float64))
            for labels, (times, values) in self._samples.items()
        ]
        return joined_columns(parts)


def _given(
    surroundings: RuleSurroundings, text: str, at_ms: int, piece: _Piece, step: int, run: _RuleRun
) -> RuleSurroundings:
    """Surroundings in which the expression of the rule has been evaluated already."""
    instant = surroundings.query

    def query(asked: str, ts_ms: int) -> Sequence[VectorSample]:
        if asked != text or ts_ms != at_ms - run.offset_ms:
            return instant(asked, ts_ms)
        if step in piece.failed:
            raise piece.failed[step]
        rows = np.flatnonzero(piece.present[:, step]).tolist()
        return [VectorSample(piece.labels[row], float(piece.values[row, step])) for row in rows]

    return replace(surroundings, query=query)


class _errors_of_reads:
    """Turns errors of reads into Unavailable, so that no rule is blamed for them."""

    def __enter__(self) -> None:
        """Nothing to do before."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TsdbError) and not isinstance(error, (*OF_THE_RULE, Unavailable)):
            raise Unavailable(error.message, reason=error.reason) from error


class _Replaced:
    """Implements Storage without the stored samples about which the rules decide: their results stand for these."""

    def __init__(self, base: Storage, runs: Sequence[_RuleRun]) -> None:
        self._base = base
        self._runs = runs
        self._readable: dict[tuple[Matcher, ...], list[_RuleRun]] = {}

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        found = self._base.select(matchers, start_ms, end_ms)
        runs = self._of(tuple(matchers))
        if not runs or not len(found.ts_ms):
            return found
        keeps = np.ones(len(found.ts_ms), np.bool_)
        for row, canonical in enumerate(found.labels):
            labels, part = parse_labels(canonical), slice(int(found.starts[row]), int(found.starts[row + 1]))
            for run in runs:
                if any(_writes(output, labels) for output in run.outputs):
                    keeps[part] &= ~run.replaces(found.ts_ms[part])
        if keeps.all():
            return found
        starts = np.concatenate(([0], np.cumsum(keeps)))[found.starts]
        details = found.details and found.details.take(np.flatnonzero(keeps))
        return StoredSeries(found.labels, starts, found.ts_ms[keeps], found.values[keeps], found.warnings, details)

    def _of(self, matchers: tuple[Matcher, ...]) -> list[_RuleRun]:
        known = self._readable.get(matchers)
        if known is None:
            reach = RuleReach(matchers, 0)
            known = [run for run in self._runs if any(may_read(reach, output) for output in run.outputs)]
            self._readable[matchers] = known
        return known


def _writes(output: RuleReach, labels: Labels) -> bool:
    return label_filter(output.matchers)(labels)


def _for_state(alert: Labels) -> Labels:
    return tuple(sorted((*alert, (METRIC_NAME, ALERTS_FOR_STATE))))


def _is_of_one_step(query: RuleQuery) -> bool:
    """Whether an expression may have other values in a range query: it reads at a fixed time, at the start or the end
    of the query, uses its step, or has a parameter of an aggregation that counts at the first step alone."""
    for node in post_order(query.node):
        if isinstance(node, Aggregation) and not isinstance(node.parameter, NumberLiteral | StringLiteral | None):
            return True
        if isinstance(node, VectorSelector | Subquery) and node.at is not None:
            return True
        if any(_calls(one) for one in _durations_of(node)):
            return True
    return False


def _durations_of(node: object) -> Iterator[Duration | None]:
    if isinstance(node, VectorSelector):
        yield node.offset
    elif isinstance(node, MatrixSelector):
        yield from (node.range, node.selector.offset)
    elif isinstance(node, Subquery):
        yield from (node.range, node.step, node.offset)


def _calls(node: Duration | None) -> bool:
    match node:
        case DurationCall():
            return node.name in ("step", "range") or any(map(_calls, node.args))
        case DurationParen():
            return _calls(node.inner)
        case DurationUnary():
            return _calls(node.operand)
        case DurationBinary():
            return _calls(node.left) or _calls(node.right)
        case _:
            return False
