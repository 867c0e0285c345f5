"""The public client: connect, write, query, select, watch (docs/client.md).

    from datetime import datetime, timezone
    from tsdb.client import WriteBatch, connect

    with connect("127.0.0.1:7410") as client:
        batch = WriteBatch()
        batch.add({"__name__": "up", "job": "demo"}, datetime.now(timezone.utc).replace(microsecond=0), 1.0)
        client.write(batch)
        table = client.query_range("rate(up[5m])", "-1h", "now", "1m").to_pandas()

`connect` gives a blocking client, `connect_async` one for asyncio. Errors are the classes of tsdb.model.errors.
"""

from tsdb.answer.spec import ReadOptions
from tsdb.client.aio import AsyncClient, connect_async
from tsdb.client.arguments import Step, Time
from tsdb.client.batch import Exemplar, RequestLimits, WriteBatch
from tsdb.client.cardinality import Cardinality, CardinalityGroup
from tsdb.client.channel import ClientTls
from tsdb.client.histogram import Histogram
from tsdb.client.queries import QueryInfo
from tsdb.client.query import QueryResult
from tsdb.client.read import SeriesGroup, SeriesInfo
from tsdb.client.result import SelectResult, Series
from tsdb.client.select import SelectQuery
from tsdb.client.sync import Client, connect
from tsdb.client.watch import WatchBatch
from tsdb.client.write import WriteResult
from tsdb.model.errors import (
    CorruptData,
    HoleInRange,
    InvalidRequest,
    OutOfCoverage,
    Overloaded,
    TsdbError,
    Unauthenticated,
    Unavailable,
    WrongTopic,
)

__all__ = [
    "AsyncClient",
    "Cardinality",
    "CardinalityGroup",
    "Client",
    "ClientTls",
    "CorruptData",
    "Exemplar",
    "Histogram",
    "HoleInRange",
    "InvalidRequest",
    "OutOfCoverage",
    "Overloaded",
    "QueryInfo",
    "QueryResult",
    "ReadOptions",
    "RequestLimits",
    "SelectQuery",
    "SelectResult",
    "Series",
    "SeriesGroup",
    "SeriesInfo",
    "Step",
    "Time",
    "TsdbError",
    "Unauthenticated",
    "Unavailable",
    "WatchBatch",
    "WriteBatch",
    "WriteResult",
    "WrongTopic",
    "connect",
    "connect_async",
]
