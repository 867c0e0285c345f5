"""Compares two answers of Prometheus's HTTP API: equal labels and times, values within 1e-9."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

TOLERANCE = 1e-9


def check_equal(ours: bytes, theirs: bytes, place: str) -> None:
    """Raises AssertionError, with `place`, which names the answer, in its text, when the answers differ."""
    first, second = (_rows(json.loads(body)["data"]) for body in (ours, theirs))
    assert first.keys() == second.keys(), f"{place}: {len(first)} and {len(second)} series"
    for labels, points in first.items():
        one, other = np.array(points, float), np.array(second[labels], float)
        assert one.shape == other.shape, f"{place}: {len(one)} and {len(other)} points of {labels}"
        assert np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE), f"{place}: other values of {labels}"


def _rows(data: Any) -> dict[str, Any]:
    """Points by labels; label values have none."""
    if isinstance(data, list):
        return {value: [] for value in data}
    return {json.dumps(row["metric"], sort_keys=True): row.get("values") or [row["value"]] for row in data["result"]}
