"""Exemplars of one request: which are accepted, and their log records.

A protocol collects them beside its rows. The write pipeline keeps those of accepted series and appends them after the
samples, a record a partition. A bad exemplar is dropped and counted, and refuses nothing else, as in Prometheus. Its
order and whether it repeats another one is for stores to find, which have the exemplars before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.rows import ResolvedSeries, RowExemplars
from tsdb.codec.records.exemplar_record import (
    LABEL_BYTES_MAX,
    LABEL_CHARS_MAX,
    Exemplars,
    encode_exemplars,
    encoded_exemplars_size,
)
from tsdb.model.labels import SEPARATOR
from tsdb.ops.metrics import counter

LABELS_TOO_LONG, LABELS_MALFORMED, TOO_MANY = "labels_too_long", "labels_malformed", "too_many"
REFUSED_SERIES, UNKNOWN_SERIES, TOO_FAR_AHEAD = "refused_series", "unknown_series", "too_far_ahead"
_KNOWN_UNTIL = 1  # Column of ResolvedSeries.known.

accepted_total = counter("tsdb_ingest_exemplars_total", "Accepted exemplars: the log has them.")
_dropped = counter(
    "tsdb_ingest_exemplars_dropped_total",
    "Received exemplars that are not kept, by reason. labels_too_long: over 128 characters of names and values; "
    "too_many: over request_exemplars_max; refused_series: its series is refused; unknown_series: no sample of its "
    "series came before.",
    "reason",
    (LABELS_TOO_LONG, LABELS_MALFORMED, TOO_MANY, REFUSED_SERIES, UNKNOWN_SERIES, TOO_FAR_AHEAD),
)


def count_dropped(reason: str, count: int = 1) -> None:
    """Count exemplars that are not kept."""
    if count:
        _dropped.labels(reason).inc(count)


class ExemplarRows:
    """Collects the exemplars of a request. exemplars_max: the most of them; the others are dropped."""

    def __init__(self, exemplars_max: int) -> None:
        self._left = exemplars_max
        self._row: list[int] = []
        self._ts_ms: list[int] = []
        self._values: list[float] = []
        self._labels: list[bytes] = []

    def add(self, row: int, ts_ms: int, value: float, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Add the exemplar of a row. pairs: names and values of its labels, in any order."""
        if not self._left:
            count_dropped(TOO_MANY)
            return
        ordered = sorted(pairs)
        joined = SEPARATOR.join([part for pair in ordered for part in pair])
        if len(joined) > LABEL_BYTES_MAX:
            count_dropped(LABELS_TOO_LONG)
            return
        try:
            # Valid UTF-8 has no byte 0xFF, so that the separators are those of the join alone.
            chars = sum(len(part.decode()) for pair in ordered for part in pair)
        except UnicodeDecodeError:
            count_dropped(LABELS_MALFORMED)
            return
        if chars > LABEL_CHARS_MAX or len(ordered) > LABEL_CHARS_MAX:
            count_dropped(LABELS_TOO_LONG)
            return
        self._left -= 1
        self._row.append(row)
        self._ts_ms.append(ts_ms)
        self._values.append(value)
        self._labels.append(joined)

    def built(self) -> RowExemplars | None:
        """The exemplars; None without any."""
        if not self._row:
            return None
        starts = np.zeros(len(self._row) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, self._labels), np.int64, len(self._labels)), out=starts[1:])
        return RowExemplars(
            np.array(self._row, np.int64),
            np.array(self._ts_ms, np.int64),
            np.array(self._values, np.float64),
            np.frombuffer(b"".join(self._labels), np.uint8),
            starts,
        )


@dataclass(frozen=True, slots=True)
class ExemplarPart:
    """An encoded record of exemplars for one partition."""

    partition: int
    data: bytes


def chosen_exemplars(
    found: RowExemplars,
    series: ResolvedSeries,
    good: NDArray[np.bool_],
    refused: Iterable[int],
    age_ms: int,
    newest_ms: int,
) -> NDArray[np.int64]:
    """Indices of the exemplars of good rows, and of rows without samples whose series is known or has a sample in
    another row: Prometheus sends the two apart. Counts the others. newest_ms: an exemplar after it is dropped: for its
    series, all later ones would be out of order."""
    is_refused = np.zeros(len(good), np.bool_)
    is_refused[np.fromiter(refused, np.int64)] = True
    # A series that is known here was announced and acknowledged, so each store finds it before the exemplar.
    known = (series.known[:, :, _KNOWN_UNTIL] > age_ms).any(axis=1) | np.isin(series.series_id, series.series_id[good])
    accepted = good | (known & ~is_refused)
    count_dropped(REFUSED_SERIES, int(is_refused[found.row].sum()))
    count_dropped(UNKNOWN_SERIES, int((~accepted & ~is_refused)[found.row].sum()))
    in_time = found.ts_ms <= newest_ms
    count_dropped(TOO_FAR_AHEAD, int((accepted[found.row] & ~in_time).sum()))
    return np.flatnonzero(accepted[found.row] & in_time)


def exemplar_parts(
    found: RowExemplars, series: ResolvedSeries, which: NDArray[np.int64], bytes_max: int
) -> list[ExemplarPart]:
    """The records of some exemplars, of at most bytes_max bytes where more than one exemplar is in a record. Those of a
    partition keep their order."""
    partition = series.partition[found.row[which]]
    parts: list[ExemplarPart] = []
    for number in np.unique(partition).tolist():
        of_partition = which[partition == number]
        every = Exemplars(
            series.series_id[found.row], found.ts_ms, found.values, found.labels, found.label_starts
        ).take(of_partition)
        parts += [ExemplarPart(number, encode_exemplars(one)) for one in _split(every, bytes_max)]
    return parts


def _split(every: Exemplars, bytes_max: int) -> Sequence[Exemplars]:
    if len(every) == 1 or encoded_exemplars_size(len(every), len(every.labels)) <= bytes_max:
        return [every]
    middle = len(every) // 2
    halves = every.take(np.arange(middle)), every.take(np.arange(middle, len(every)))
    return [small for half in halves for small in _split(half, bytes_max)]
