"""A key-ordered parallel consumer: many records of a partition at once, in order by key, with exact commits.

Works alone: it imports nothing else of this project. `tsdb.parallel_consumer.kafka` joins it to Kafka;
`tsdb.parallel_consumer.testing` is a broker in memory with a seeded scheduler, for tests of handlers.
"""

from tsdb.parallel_consumer.consumer import ParallelConsumer
from tsdb.parallel_consumer.errors import (
    CommitFailed,
    ConsumerError,
    HandlerStopped,
    MetadataRefused,
    Misused,
    SendFailed,
)
from tsdb.parallel_consumer.executors import Done, Executor, OnLoop, OnThreads, WithCallback
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Order, Place, by_key, by_partition, unordered
from tsdb.parallel_consumer.outlet import Outlet, OutRecord
from tsdb.parallel_consumer.policy import Action, Backoff, ErrorPolicy
from tsdb.parallel_consumer.record import Headers, Partition, Position, Record
from tsdb.parallel_consumer.source import Polled, Source, SourceListener
from tsdb.parallel_consumer.status import PartitionStatus, Stall, Status

__all__ = [
    "Action",
    "Backoff",
    "CommitFailed",
    "ConsumerError",
    "ConsumerMetrics",
    "Done",
    "ErrorPolicy",
    "Executor",
    "HandlerStopped",
    "Headers",
    "MetadataRefused",
    "Misused",
    "OnLoop",
    "OnThreads",
    "Options",
    "Order",
    "OutRecord",
    "Outlet",
    "ParallelConsumer",
    "Partition",
    "PartitionStatus",
    "Place",
    "Polled",
    "Position",
    "Record",
    "SendFailed",
    "Source",
    "SourceListener",
    "Stall",
    "Status",
    "WithCallback",
    "by_key",
    "by_partition",
    "unordered",
]
