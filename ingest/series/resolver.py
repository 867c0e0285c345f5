"""Resolver: finds the series of the label sets of a request. A hit costs two hashes and one look-up in the series
table.

On a miss the labels are checked, made canonical and placed, all in kernels; the text of a refusal is made by
`normalize_labels`, for the rows that are listed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.limits import IngestLimits
from ingest.refusals import OFFENDERS_MAX, shown_series
from ingest.rows import ResolvedSeries, Rows, unresolved
from ingest.series.canonical import CanonicalLabels, LabelNormalizer, hash_rows
from ingest.series.label_kernels import DUPLICATE, EMPTY, MALFORMED, RESERVED, TOO_LONG, TOO_MANY, VALID
from ingest.series.table import SeriesTable
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import LabelLimits, format_series, normalize_labels
from tsdb.model.placement import PlacementRule
from tsdb.ops.logs import get_logger

REASONS = {
    EMPTY: "labels_empty",
    MALFORMED: "labels_malformed",
    RESERVED: "labels_reserved",
    DUPLICATE: "labels_duplicate",
    TOO_MANY: "labels_too_many",
    TOO_LONG: "labels_too_long",
}
# Error of all refused rows after the listed ones; its text is not shown.
_UNLISTED = {code: InvalidRequest(reason, reason=reason) for code, reason in REASONS.items()}
_UNLISTED_CONFLICT = InvalidRequest("id_conflict", reason="id_conflict")

logger = get_logger(__name__)


class SeriesResolver:
    """Resolves the rows of requests of all threads."""

    def __init__(self, table: SeriesTable, rule: PlacementRule, partitions: int, limits: IngestLimits) -> None:
        self._table = table
        self._limits: LabelLimits = limits.labels
        self._normalizer = LabelNormalizer(rule, partitions, limits.labels)

    def resolve(self, rows: Rows, now_ms: int) -> ResolvedSeries:
        """Series of all rows. now_ms: time of the age clock.

        errors: those of the rows, with the reasons of normalize_labels; and id_conflict when another series, in the
        table or earlier in the request, has the same id.
        """
        series = unresolved(*hash_rows(rows))
        (missed,) = (~self._table.find(series)).nonzero()
        if len(missed):
            self._resolve_missed(rows, missed, series, now_ms)
        series.errors.update(rows.errors)
        return series

    def normalize(self, rows: Rows, which: NDArray[np.int64]) -> CanonicalLabels:
        """Canonical labels of rows that `resolve` accepted."""
        return self._normalizer.normalize(rows, which)

    def canonical(self, rows: Rows, row: int) -> bytes:
        """Canonical labels of one row that `resolve` accepted."""
        return normalize_labels(rows.labels_of(row), self._limits)

    def _resolve_missed(self, rows: Rows, missed: NDArray[np.int64], series: ResolvedSeries, now_ms: int) -> None:
        labels = self._normalizer.normalize(rows, missed)
        for index in np.flatnonzero(labels.code != VALID).tolist():
            self._refuse(rows, int(missed[index]), int(labels.code[index]), series.errors)
        valid = np.flatnonzero(labels.code == VALID)
        found = ResolvedSeries(
            labels.series_id[valid],
            labels.check[valid],
            labels.pack_id[valid],
            labels.partition[valid],
            np.zeros((len(valid), 2, 3), np.int64),
        )
        conflict = self._table.recall(found, now_ms) | conflicts_within(found)
        where = missed[valid]
        for field in ("series_id", "check", "pack_id", "partition", "known"):
            getattr(series, field)[where] = getattr(found, field)
        for row in where[conflict].tolist():
            self._refuse_conflict(rows, row, int(series.series_id[row]), series.errors)

    def _refuse(self, rows: Rows, row: int, code: int, errors: dict[int, InvalidRequest]) -> None:
        if row in rows.errors:
            return
        errors[row] = _UNLISTED[code]
        if len(errors) <= OFFENDERS_MAX:
            try:
                normalize_labels(rows.labels_of(row), self._limits)
            except InvalidRequest as error:
                errors[row] = error
            assert errors[row].reason == REASONS[code], f"row {row}: {errors[row].reason}, code {code}"

    def _refuse_conflict(self, rows: Rows, row: int, series_id: int, errors: dict[int, InvalidRequest]) -> None:
        errors[row] = _UNLISTED_CONFLICT
        if len(errors) <= OFFENDERS_MAX:
            canonical = self.canonical(rows, row)
            logger.warning("series id conflict", series_id=f"{series_id:016x}", refused=format_series(canonical))
            errors[row] = InvalidRequest(
                f"series_id {series_id:016x} is that of another series; series {shown_series(canonical)}: "
                "change one of its labels",
                reason="id_conflict",
            )


def conflicts_within(series: ResolvedSeries) -> NDArray[np.bool_]:
    """Series whose id an earlier, different one of the same request has."""
    _, first, place = np.unique(series.series_id, return_index=True, return_inverse=True)
    conflict: NDArray[np.bool_] = series.check != series.check[first[place]]
    return conflict
