"""Memory reports: name the largest sources in a head that is at its memory limit and the ways to free memory, for its
log line and its readiness.

A report is made on the worker's thread at most once a minute per partition: the count by source passes over all series.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tsdb.head.head import Head
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError
from tsdb.ops.logs import get_logger

AGAIN_S = 60.0
SOURCES_MAX = 5
VALUE_CHARS_MAX = 48

log = get_logger(__name__)


class MemoryReports:
    """Makes reports. placement_labels: the labels that name a source in a report. One thread."""

    def __init__(self, placement_labels: Sequence[str], clock: Clock) -> None:
        self._names = placement_labels
        self._clock = clock
        self._made: dict[int, tuple[float, str]] = {}

    def message(self, head: Head, waiting: TsdbError) -> str:
        """The report when the head is at its memory limit: the largest sources and the next step. Empty for any other
        reason to wait."""
        if not isinstance(waiting, Overloaded):
            return ""
        made = self._made.get(head.partition)
        if made is None or self._clock.monotonic() - made[0] >= AGAIN_S:
            made = (self._clock.monotonic(), self._made_now(head, waiting))
            self._made[head.partition] = made
        return made[1]

    def _made_now(self, head: Head, waiting: Overloaded) -> str:
        sizes = head.sizes()
        sources = [
            f"{self._shown(values)} {count} series"
            for values, count in head.index.largest_groups(self._names, SOURCES_MAX)
        ]
        log.error(
            "partition has no room in memory",
            partition=head.partition,
            error=waiting.message,
            series=sizes.series,
            label_bytes=head.index.label_bytes(),
            index_bytes=sizes.index_bytes,
            bytes=sizes.bytes,
            largest_sources=sources,
        )
        return (
            f"{waiting.message}; it has {sizes.series} series with {head.index.label_bytes()} bytes of labels, most of"
            f" {', '.join(sources) or 'no source'}: raise memory_hard_bytes, hold fewer partitions in one store, or"
            " limit the source (source_series_max, limits_file) and wait until its series end"
        )

    def _shown(self, values: Sequence[str]) -> str:
        named = zip(self._names, values, strict=True)
        return ",".join(f"{name}={json.dumps(value[:VALUE_CHARS_MAX])}" for name, value in named)
