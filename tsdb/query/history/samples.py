"""History samples: reads history's samples of some series in a range, in bounded stretches of whole packs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.interface import HistoryReads, HistoryRow, WantedSeries, WindowRange
from tsdb.model.errors import CorruptData
from tsdb.model.labels import metric_name
from tsdb.ops.metrics import counter
from tsdb.query.history.stretch import Stretch

# A head decodes this number at a time, too. It bounds the memory of a read beside its result.
STRETCH_SAMPLES = 4 << 20

chunks_total = counter("tsdb_query_history_chunks_total", "Chunks (parts) read back from history.")
bytes_total = counter("tsdb_query_history_bytes_total", "Bytes of the chunks read back from history.")
decoded_total = counter("tsdb_query_history_samples_decoded_total", "Samples in the chunks read back from history.")
wanted_total = counter(
    "tsdb_query_history_samples_wanted_total",
    "Decoded samples that queries requested; all decoded samples over these are the over-read.",
)
corrupt_total = counter("tsdb_query_history_corrupt_chunks_total", "Chunks read back that do not decode.")

OnCorrupt = Callable[[HistoryRow, CorruptData], None]
"""Called for a chunk that does not decode: raises, or returns to continue without the chunk."""


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Series (uint64, ascending) of packs (each once) in [start_ms, end_ms). labels: canonical, of all these series and
    maybe of others."""

    pack_ids: Sequence[int]
    series_ids: NDArray[np.uint64]
    labels: Sequence[bytes]
    start_ms: int
    end_ms: int

    @property
    def wanted(self) -> WantedSeries:
        return WantedSeries(self.series_ids, lambda: set(map(metric_name, self.labels)))


def history_samples(
    history: HistoryReads,
    query: HistoryQuery,
    window_ms: int,
    on_corrupt: OnCorrupt,
    on_progress: Callable[[int], None],
) -> Iterator[Fragment]:
    """Merged samples in stretches of about STRETCH_SAMPLES; no stretch is empty, and each pack is whole in one stretch.

    on_progress: called between pieces of history with the number of samples in the stretch so far; it may raise.
    """
    stretch = Stretch(query.series_ids, query.start_ms, query.end_ms)
    pack_id = None
    windows = WindowRange.touching(query.start_ms, query.end_ms, window_ms)
    for rows in history.read(query.pack_ids, windows, query.wanted):
        on_progress(stretch.samples)
        if stretch.samples >= STRETCH_SAMPLES and rows[0].key.pack_id != pack_id:
            yield from _taken(stretch)
        pack_id = rows[0].key.pack_id
        fragments = list(_fragments(rows, on_corrupt))
        for fragment in fragments:
            stretch.add(fragment)
        chunks_total.inc(len(fragments))
        bytes_total.inc(sum(row.size for row in rows))
        decoded_total.inc(sum(fragment.samples for fragment in fragments))
    yield from _taken(stretch)


def _taken(stretch: Stretch) -> Iterator[Fragment]:
    fragment = stretch.take()
    if fragment is not None:
        wanted_total.inc(fragment.samples)
        yield fragment


def _fragments(rows: Sequence[HistoryRow], on_corrupt: OnCorrupt) -> Iterator[Fragment]:
    for row in rows:
        try:
            yield row.fragment()
        except CorruptData as error:
            corrupt_total.inc()
            on_corrupt(row, error)
