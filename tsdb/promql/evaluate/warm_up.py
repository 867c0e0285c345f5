"""Warm-up: the kernels of an evaluation are compiled or loaded before the first query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsdb.model.labels import canonical_labels
from tsdb.model.selector import Matcher
from tsdb.promql.evaluate.query import QueryOptions, range_query
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.features import ALL_FEATURES

STEP_MS = 1000
_BUCKETS = {"1": [1.0, 2.0], "+Inf": [2.0, 4.0]}

# A query for each kernel, and the sum of its values.
_QUERIES = {
    "sum(increase(x[2s]))": 6.0,
    "x": 9.0,
    "x smoothed": 9.0,
    "topk(1, x)": 6.0,
    "limitk(1, x)": 3.0,
    "histogram_quantile(1, x)": 2.0,
}


class _Storage:
    """Two buckets with two samples each."""

    def select(self, _: Sequence[Matcher], __: int, ___: int) -> StoredSeries:
        labels = [canonical_labels({"__name__": "x_bucket", "le": bound}) for bound in _BUCKETS]
        values = np.concatenate([np.array(held) for held in _BUCKETS.values()])
        return StoredSeries(labels, np.array([0, 2, 4], np.int64), np.array([0, STEP_MS] * 2, np.int64), values)


def warm_up() -> None:
    """Evaluate small queries, and check the known results."""
    options = QueryOptions(ALL_FEATURES)
    for query, total in _QUERIES.items():
        value = range_query(query, _Storage(), 0, STEP_MS, STEP_MS, options).value
        assert isinstance(value, Block), "a range query gives a block"
        assert value.values[value.present].sum() == total, f"the warm-up of {query} found {value.values}"
