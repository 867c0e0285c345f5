"""Narrowed reader: the base of the sources `log` and `history`, which share options, columns, and filters taken from
the query.

It recognises the input partition that PySpark plans for a reader without input partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from spark_backfill.source.columns import SampleColumns
from spark_backfill.source.filters import Narrowing, push
from spark_backfill.source.options import SourceOptions


class NarrowedReader(DataSourceReader):
    """A reader that Spark serialises for tasks. It opens connections only in `partitions` and `read`."""

    def __init__(self, options: SourceOptions, columns: SampleColumns) -> None:
        self._options = options
        self._columns = columns
        self._narrowing = Narrowing(options.span, options.matchers)
        # A worker caches the series table of one query only: history changes, so the next query reads it anew.
        self._query = uuid.uuid4().hex

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # Spark chose the name.
        """Take conditions on time, ids and label columns; return the filters left to Spark."""
        pushed = push(filters, self._columns)
        self._narrowing = Narrowing(
            self._options.span.within(pushed.narrowing.span),
            (*self._options.matchers, *pushed.narrowing.matchers),
            pushed.narrowing.series_ids,
            pushed.narrowing.pack_ids,
        )
        return pushed.left


def is_empty_plan(partition: InputPartition) -> bool:
    """Whether the reader returned no input partitions. PySpark then calls `read` once, with an InputPartition(None)."""
    return type(partition) is InputPartition and partition.value is None
