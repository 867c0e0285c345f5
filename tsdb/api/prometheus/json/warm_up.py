"""Warm-up: the kernels of answers are compiled or loaded before the first query."""

from __future__ import annotations

import numpy as np

from tsdb.api.prometheus.json.rows import matrix_rows
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import Pool, label_sets

WANTED = b'{"metric":{"a":"b"},"values":[[0,"0.1"]]}'


def warm_up() -> None:
    """Write a small matrix, and check the known result."""
    labels = label_sets(Pool(), [{"a": "b"}])
    block = Block(labels, np.array([[0.1]]), np.ones((1, 1), np.bool_), np.zeros(1, np.bool_))
    written = b"".join(matrix_rows(block, np.zeros(1, np.int64)))
    assert written == WANTED, f"the warm-up wrote {written!r}"
