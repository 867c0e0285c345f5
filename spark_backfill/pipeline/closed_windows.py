"""Closed windows: the windows that a batch emits, each with its share of the late minutes. Reads no record.

A window's task reads all records from a little before the window's start to its decision offset. The records between
the decision offsets of two neighbouring windows are a part of these, so the same task scans them for late samples. A
decision offset begins a late minute, because windows and grace consist of whole late minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_backfill.pipeline.offsets import Base, Span
from tsdb.log.interface import METRICS, Log
from tsdb.model.time_set import TimeSet


@dataclass(frozen=True, slots=True)
class ClosedWindows:
    """The windows that begin in [first_ms, end_ms), of one partition.

    edges: decision offset of the window that ends at first_ms, then that of each window, ascending. empty: whether the
    log has no record that can have a sample of a window's base chunk; one entry for each window.
    """

    first_ms: int
    end_ms: int
    edges: tuple[int, ...]
    empty: tuple[bool, ...]

    def bases(self, late: Span, window_ms: int) -> list[Base]:
        """The work of the windows, with their shares of the offsets `late`. Neighbouring empty windows share one."""
        found: list[Base] = []
        for number, empty in enumerate(self.empty):
            start_ms = self.first_ms + number * window_ms
            if empty and number and self.empty[number - 1]:
                found[-1] = found[-1]._replace(end_ms=start_ms + window_ms)
                continue
            first, end = (min(max(edge, late[0]), late[1]) for edge in self.edges[number : number + 2])
            share = (first, end) if first < end else (0, 0)
            found.append(Base(start_ms, start_ms + window_ms, *share))
        return found

    def beside(self, late: Span) -> tuple[Span, Span]:
        """The offsets of `late` before the shares of all windows, and those after them. Either may be empty."""
        first, end = (min(max(edge, late[0]), late[1]) for edge in (self.edges[0], self.edges[-1]))
        return (late[0], first), (end, late[1])


def closed_windows(log: Log, spans: Mapping[int, Span], times: TimeSet) -> dict[int, ClosedWindows]:
    """Look up the windows in [first_ms, end_ms) of each partition. All of them are closed by the log.

    One request serves all partitions: a request for each partition and window took most of a long batch's planning.
    """
    edges = _edges(log, spans, times)
    return {
        number: ClosedWindows(first_ms, end_ms, tuple(edges[number]), tuple(empty))
        for (number, (first_ms, end_ms)), empty in zip(
            spans.items(), _empty(log, spans, edges, times).values(), strict=True
        )
    }


def _edges(log: Log, spans: Mapping[int, Span], times: TimeSet) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {number: [] for number in spans}
    for step in range(max((_count(span, times) for span in spans.values()), default=-1) + 1):
        wanted = {
            number: first_ms + step * times.window_ms + times.grace_ms
            for number, (first_ms, end_ms) in spans.items()
            if first_ms + step * times.window_ms <= end_ms
        }
        for number, offset in log.offsets_for_times(METRICS, wanted).items():
            assert offset is not None, "closed windows have decision offsets"
            found[number].append(offset)
    return found


def _empty(
    log: Log, spans: Mapping[int, Span], edges: Mapping[int, list[int]], times: TimeSet
) -> dict[int, list[bool]]:
    """Whether each window has no record. A single window is not looked up: there is nothing to share with it."""
    found = {number: [False] * _count(span, times) for number, span in spans.items()}
    for window in range(max(map(len, found.values()), default=0)):
        wanted = {
            number: spans[number][0] + window * times.window_ms - times.ahead_ms
            for number, empty in found.items()
            # A window's records begin before the decision offset of the window before it.
            if 1 < len(empty) > window and edges[number][window] == edges[number][window + 1]
        }
        if wanted:
            for number, first in log.offsets_for_times(METRICS, wanted).items():
                found[number][window] = first == edges[number][window + 1]
    return found


def _count(span: Span, times: TimeSet) -> int:
    return (span[1] - span[0]) // times.window_ms
