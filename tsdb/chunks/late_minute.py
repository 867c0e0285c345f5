"""Late minute: the late samples of one stretch of the log, collected until the minute ends, then made into fragments.

Its memory is bounded only by the late samples of one minute in the log. It cannot be emitted in parts: a chunk of a
part could not be distinguished from a whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment
from tsdb.model.details import SampleDetails, joined_details

SAMPLE_BYTES = 40


@dataclass(frozen=True, slots=True)
class LateSamples:
    """Columns of n late samples in the order of the log: uint64, uint64, int64, float64, int64, and their details."""

    pack_id: NDArray[np.uint64]
    series_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    order: NDArray[np.int64]
    details: SampleDetails | None = None

    def part(self, first: int, last: int) -> LateSamples:
        """The samples [first, last); columns are shared."""
        return LateSamples(
            self.pack_id[first:last],
            self.series_id[first:last],
            self.ts_ms[first:last],
            self.value[first:last],
            self.order[first:last],
            None if self.details is None else self.details.part(first, last),
        )


@dataclass(slots=True)
class LateMinute:
    """The late minute that begins with the record at first_offset. end_ms: its end by broker time; None: not known
    yet."""

    first_offset: int
    samples: int = 0
    end_ms: int | None = None
    detail_bytes: int = 0
    _parts: list[LateSamples] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return self.samples * SAMPLE_BYTES + self.detail_bytes

    def add(self, late: LateSamples) -> None:
        """Add samples. Their records come after those of all samples added before."""
        self._parts.append(late)
        self.samples += len(late.ts_ms)
        if late.details is not None:
            self.detail_bytes += late.details.nbytes

    def fragments(self, window_ms: int) -> Iterator[Fragment]:
        """One fragment for each (pack, window), ascending. For equal (series, timestamp) the last sample in the log
        wins."""
        if not self._parts:
            return
        pack_id, series_id, ts_ms, value, order = _joined(self._parts)
        details = joined_details([(len(part.ts_ms), part.details) for part in self._parts])
        window = ts_ms // window_ms
        places = np.lexsort((ts_ms, series_id, window, pack_id))  # Stable: the order of the log is the last key.
        pack_id, series_id, window, ts_ms = pack_id[places], series_id[places], window[places], ts_ms[places]
        new_chunk = _changes(pack_id, window)
        new_series = new_chunk | _changes(series_id)
        last = np.append((new_series | _changes(ts_ms))[1:], True)
        pack_id, series_id, window, ts_ms = pack_id[last], series_id[last], window[last], ts_ms[last]
        value, order = value[places[last]], order[places[last]]
        if details is not None:
            details = details.take(places[last])
        # Computed again: a replaced sample may have been the first one of its pack and window.
        starts = np.append(np.flatnonzero(_changes(pack_id, window)), len(ts_ms))
        for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield _fragment(
                int(pack_id[start]),
                int(window[start]) * window_ms,
                LateSamples(pack_id, series_id, ts_ms, value, order, details).part(start, end),
            )


def _fragment(pack_id: int, window_start_ms: int, samples: LateSamples) -> Fragment:
    first = np.flatnonzero(_changes(samples.series_id))
    sample_start = np.append(first, len(samples.ts_ms)).astype(np.int64)
    return Fragment(
        pack_id,
        window_start_ms,
        samples.series_id[first],
        sample_start,
        samples.ts_ms,
        samples.value,
        samples.order,
        samples.details,
    )


def _changes(*columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Whether any column differs from its previous element, (n,); true for the first element."""
    changed = np.zeros(len(columns[0]), np.bool_)
    changed[0] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _joined(
    parts: list[LateSamples],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    return (
        np.concatenate([part.pack_id for part in parts]),
        np.concatenate([part.series_id for part in parts]),
        np.concatenate([part.ts_ms for part in parts]),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.order for part in parts]),
    )
