"""Shape: checks the number of rows, samples and bytes of a request against the limits, and its arrays against each
other."""

from __future__ import annotations

from ingest.limits import IngestLimits
from ingest.rows import Rows
from tsdb.model.errors import InvalidRequest


def check_shape(rows: Rows, limits: IngestLimits) -> None:
    """Raises InvalidRequest: empty_request, malformed_request, too_many_series, too_many_samples, request_too_large."""
    if not len(rows):
        raise InvalidRequest("the request has no series", reason="empty_request")
    _check_limit("series", len(rows), limits.series_max, "request_series_max", "too_many_series")
    _check_limit("samples", rows.samples, limits.samples_max, "samples_max", "too_many_samples")
    _check_limit("bytes", rows.nbytes, limits.request_bytes_max, "request_bytes_max", "request_too_large")
    if not rows.starts[-1] == rows.samples == len(rows.values):
        raise InvalidRequest(
            f"{len(rows)} series claim {rows.starts[-1]} samples, but there are {rows.samples} timestamps and "
            f"{len(rows.values)} values",
            reason="malformed_request",
        )


def _check_limit(what: str, got: int, limit: int, setting: str, reason: str) -> None:
    if got > limit:
        raise InvalidRequest(
            f"the request has {got} {what}; limit is {limit} ({setting}): split it", reason=reason, got=got, limit=limit
        )
