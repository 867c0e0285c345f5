"""Metrics as a test sees them: what one sample of the registry says now."""

from __future__ import annotations

from tsdb.ops.metrics import registry


def sample(name: str, **labels: str) -> float:
    """Value of one sample; 0 when it does not exist yet."""
    return registry.get_sample_value(name, labels) or 0.0
