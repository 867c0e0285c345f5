"""Paths: checks memory, the seam, history and PromQL, each with a read and a comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.canary.canary_metrics import partitions, partitions_written
from tsdb.canary.comparison import Comparison, Findings, Returned, compare
from tsdb.canary.layout import Layout
from tsdb.canary.ledger import Ledger, Newest
from tsdb.canary.ranges import (
    SEAM_TICKS,
    CoverageStart,
    NotYet,
    Range,
    history_range,
    memory_range,
    seam_of,
    seam_range,
)
from tsdb.client import Client, QueryResult, ReadOptions

Outcome = Findings | NotYet
NO_SAMPLES = NotYet("no_samples")


class Paths:
    """Used by one thread. Each method is one check; it raises the TsdbError of a refused read.

    depth_ms: how far before memory history is checked. settle_ms: PromQL is checked for samples that were acknowledged
    this long before, since a query does not wait for a write; a larger lag is a failure.
    """

    def __init__(self, reader: Client, layout: Layout, ledger: Ledger, *, depth_ms: int, settle_ms: int) -> None:
        self._reader = reader
        self._layout = layout
        self._ledger = ledger
        self._depth_ms = depth_ms
        self._settle_ms = settle_ms
        self._piece = 0

    def memory(self, newest: Newest) -> Outcome:
        """The newest samples, up to the last acknowledged one."""
        return self._selected(memory_range(self._layout, self._seam(), newest.ts_ms + 1), newest)

    def seam(self, newest: Newest) -> Outcome:
        """Samples on both sides of the seam."""
        seam = self._seam()
        span = seam_range(self._layout, seam, newest.ts_ms + 1)
        outcome = self._selected(span, newest)
        if isinstance(outcome, NotYet) or not outcome.clean:
            return outcome
        # Samples of memory alone are no check of the seam.
        assert seam.first_ms is not None
        return outcome if outcome.oldest_ms is not None and outcome.oldest_ms < seam.first_ms else NO_SAMPLES

    def history(self, newest: Newest) -> Outcome:
        """Check the next piece of history."""
        outcome = self._history_piece(newest)
        if outcome == NO_SAMPLES:
            # The piece is empty, and nothing shows that it should not be: the canary did not run then, or had not
            # begun. The newest older samples are next, or the newest piece.
            empty, self._piece = self._piece, self._older_piece()
            outcome = outcome if self._piece == empty else self._history_piece(newest)
        if isinstance(outcome, Findings):
            self._piece += 1
        return outcome

    def promql(self, newest: Newest) -> Outcome:
        """Check the samples at each of their times, and their sum."""
        end_ms = self._layout.tick_ms(newest.ts_ms - self._settle_ms) + 1
        span = memory_range(self._layout, self._seam(), end_ms)
        ticks = self._layout.ticks(span.start_ms, span.end_ms)
        if not len(ticks):
            return NO_SAMPLES
        answer = self._query(self._layout.selector, ticks)
        compared = compare(self._layout, _series_of(answer), ticks, self._ledger.acknowledged(ticks))
        if compared.findings.empty:
            return NO_SAMPLES
        return _with_sum(compared, self._query(f"sum({self._layout.selector})", ticks), ticks)

    def _seam(self) -> CoverageStart:
        states = self._reader.coverage()
        partitions.set(len(states))
        written = self._ledger.partitions
        partitions_written.set(len(written))
        return seam_of(states, self._reader.history(), written)

    def _history_piece(self, newest: Newest) -> Outcome:
        span = history_range(self._layout, self._seam(), self._depth_ms, self._piece)
        # Samples after a piece name the samples that it must have, even for a canary that has just started.
        return self._selected(span, newest, after_ms=SEAM_TICKS * self._layout.period_ms)

    def _older_piece(self) -> int:
        """Start of the next piece before the newest samples; 0 when there are no such samples."""
        newest, span = (history_range(self._layout, self._seam(), self._depth_ms, piece) for piece in (0, self._piece))
        if isinstance(newest, NotYet) or isinstance(span, NotYet):
            return 0
        start_ms = newest.end_ms - self._depth_ms
        if start_ms >= span.start_ms:
            return 0
        found = self._reader.select(self._layout.selector, start_ms, span.start_ms, last_n=1)
        if not len(found.ts_ms):
            return 0
        return (newest.end_ms - 1 - int(found.ts_ms.max())) // (newest.end_ms - newest.start_ms)

    def _selected(self, span: Range | NotYet, newest: Newest, after_ms: int = 0) -> Outcome:
        """after_ms: the read goes on for this sample time after the span, and the outcome has the samples
        found there.
        """
        if isinstance(span, NotYet):
            return span
        end_ms = span.end_ms + after_ms
        ticks = self._layout.ticks(span.start_ms, end_ms)
        options = ReadOptions(after=newest.tokens)
        found = self._reader.select(self._layout.selector, span.start_ms, end_ms, options=options)
        returned = ((series.canonical, series.ts_ms, series.values) for series in found.series)
        findings = compare(self._layout, returned, ticks, self._ledger.acknowledged(ticks), span.end_ms).findings
        return NO_SAMPLES if findings.empty else findings

    def _query(self, text: str, ticks: NDArray[np.int64]) -> QueryResult:
        period_ms = self._layout.period_ms
        # Lookback ranges are left-open: over one period a step sees the sample at its own time alone.
        return self._reader.query_range(
            text,
            int(ticks[0]),
            int(ticks[-1]),
            period_ms,
            lookback_ms=period_ms,
            # A lag is a failed check with this reason, not missing samples.
            options=ReadOptions(max_lag_ms=self._settle_ms),
        )


def _series_of(answer: QueryResult) -> Returned:
    for index, canonical in enumerate(answer.canonical):
        span = slice(int(answer.starts[index]), int(answer.starts[index + 1]))
        yield canonical, answer.ts_ms[span], answer.values[span]


def _with_sum(compared: Comparison, answer: QueryResult, ticks: NDArray[np.int64]) -> Findings:
    """The findings of the samples, and those of their sum where each series has an exact sample."""
    whole = ~np.isnan(compared.values).any(axis=0)
    want, got = compared.values.sum(axis=0), np.full(len(ticks), np.nan)
    got[np.searchsorted(ticks, answer.ts_ms)] = answer.values
    exact, absent = whole & (got == want), whole & np.isnan(got)
    before = compared.findings
    return replace(
        before,
        exact=before.exact + int(exact.sum()),
        mismatch=before.mismatch + int((whole & ~exact & ~absent).sum()),
        missing=before.missing + int(absent.sum()),
        unexpected=before.unexpected + int((~np.isnan(got) & np.isnan(compared.values).all(axis=0)).sum()),
    )
