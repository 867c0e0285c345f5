"""Errors of an evaluation that depend on the samples, with Prometheus's words."""

from __future__ import annotations

from tsdb.model.errors import InvalidRequest


class EvaluationError(InvalidRequest):
    """An expression has no value for these samples."""

    default_reason = "query_execution"
