"""Narrowed reader: what the sources `log` and `history` share: options, and what was taken of a query's conditions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from pyspark.sql.datasource import DataSourceReader, Filter

from spark_backfill.source.columns import Columns
from spark_backfill.source.filters import Narrowing, push
from spark_backfill.source.options import SourceOptions


class NarrowedReader(DataSourceReader):
    """Travels to tasks; opens connections only where it is used."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._narrowing = Narrowing(options.span, options.matchers)
        # A worker keeps the table of the query it reads for, and of no other: history goes on.
        self._query = uuid.uuid4().hex

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # Spark's name
        """Take conditions on time, ids and label columns."""
        pushed = push(filters, self._columns)
        self._narrowing = Narrowing(
            self._options.span.within(pushed.narrowing.span),
            (*self._options.matchers, *pushed.narrowing.matchers),
            pushed.narrowing.series_ids,
            pushed.narrowing.pack_ids,
        )
        return pushed.left
