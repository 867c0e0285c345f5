"""Stretch: combines the requested samples of the chunks of some whole packs into one fragment, with one copy.

Chunks of a window are merged only where there are several. Nearly all windows have one chunk and no late samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.merge import merge
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import CorruptData
from tsdb.query.history.stretch_kernels import BROKEN, append_runs_kernel, wanted_runs_kernel

EVER = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Runs [low, high) of a fragment's samples; each run belongs to the wanted series at index `slot`."""

    fragment: Fragment
    slot: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]


class Stretch:
    """Collects fragments of the series `wanted` (uint64, ascending) in [start_ms, end_ms).

    Fragments of a pack are added window by window, all fragments of one window in a row. Not thread-safe.
    """

    def __init__(self, wanted: NDArray[np.uint64], start_ms: int, end_ms: int) -> None:
        self._wanted = wanted
        self._range = start_ms, end_ms
        self._window: list[Fragment] = []
        self._pieces: list[_Piece] = []
        self._counts = np.zeros(len(wanted), np.int64)
        self.samples = 0

    def add(self, fragment: Fragment) -> None:
        if self._window and not _same_window(self._window[0], fragment):
            self._close_window()
        self._window.append(fragment)

    def take(self) -> Fragment | None:
        """Return the collected fragment and start again without samples. None when no samples were collected.

        Raises CorruptData (two_packs) when chunks of two packs have the same series.
        """
        self._close_window()
        pieces, counts, samples = self._pieces, self._counts, self.samples
        self._pieces, self._counts, self.samples = [], np.zeros(len(self._wanted), np.int64), 0
        return _joined(pieces, self._wanted, counts, samples) if samples else None

    def _close_window(self) -> None:
        if not self._window:
            return
        fragment = merge(self._window)
        self._window = []
        slot, which, low, high = (np.empty(fragment.series, np.int64) for _ in range(4))
        found = wanted_runs_kernel(
            fragment.series_id,
            fragment.sample_start,
            fragment.ts_ms,
            self._wanted,
            *self._range,
            slot,
            which,
            low,
            high,
        )
        if found:
            piece = _Piece(fragment, slot[:found], low[:found], high[:found])
            lengths = piece.high - piece.low
            self._counts[piece.slot] += lengths
            self.samples += int(lengths.sum())
            self._pieces.append(piece)


def _same_window(one: Fragment, other: Fragment) -> bool:
    return (one.pack_id, one.window_start_ms) == (other.pack_id, other.window_start_ms)


def _joined(pieces: list[_Piece], wanted: NDArray[np.uint64], counts: NDArray[np.int64], samples: int) -> Fragment:
    begins = np.cumsum(counts) - counts
    details = _joined_details(pieces, begins, samples)
    ends = begins.copy()
    ts_ms, value, order = np.empty(samples, np.int64), np.empty(samples, np.float64), np.empty(samples, np.int64)
    for piece in pieces:
        of = piece.fragment
        runs = (piece.slot, piece.low, piece.high)
        if append_runs_kernel(of.ts_ms, of.value, of.order, *runs, begins, ends, ts_ms, value, order) == BROKEN:
            raise CorruptData(
                f"pack {of.pack_id:016x}, window {of.window_start_ms} ms: a series of it is in another pack as well",
                reason="two_packs",
            )
    filled = np.flatnonzero(counts)
    starts = np.append(begins[filled], samples)
    first = pieces[0].fragment
    return Fragment(first.pack_id, first.window_start_ms, wanted[filled], starts, ts_ms, value, order, details)


def _joined_details(pieces: list[_Piece], begins: NDArray[np.int64], samples: int) -> SampleDetails | None:
    """Details of the samples in the order that append_runs_kernel gives them. A series is in a piece once."""
    if all(piece.fragment.details is None for piece in pieces):
        return None
    source, ends, before = np.empty(samples, np.int64), begins.copy(), 0
    for piece in pieces:
        lengths = piece.high - piece.low
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        source[np.repeat(ends[piece.slot], lengths) + within] = before + np.repeat(piece.low, lengths) + within
        ends[piece.slot] += lengths
        before += piece.fragment.samples
    joined = joined_details([(piece.fragment.samples, piece.fragment.details) for piece in pieces])
    return None if joined is None else joined.take(source)


def narrow_fragment(fragment: Fragment, wanted: NDArray[np.uint64]) -> Fragment | None:
    """The samples of the series `wanted` (uint64, ascending) of a fragment; None when the fragment has none of them."""
    stretch = Stretch(wanted, *EVER)
    stretch.add(fragment)
    return stretch.take()
