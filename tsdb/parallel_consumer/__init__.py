"""Key-ordered parallel consumer: handles many records of a partition at once, in order by key, with exact commits.

Imports only tsdb.chain from this project. `tsdb.parallel_consumer.kafka` connects it to Kafka;
`tsdb.parallel_consumer.testing` has a broker in memory and a seeded scheduler for tests of handlers.
"""

from tsdb.parallel_consumer.batch_executors import InBatches, InColumns
from tsdb.parallel_consumer.batching import BatchSize
from tsdb.parallel_consumer.columns import Columns
from tsdb.parallel_consumer.consumer import ParallelConsumer
from tsdb.parallel_consumer.context import Context, Deferral
from tsdb.parallel_consumer.control import Control
from tsdb.parallel_consumer.errors import (
    CommitFailed,
    ConsumerError,
    DeferralLost,
    Fenced,
    GivenUp,
    HandlerStopped,
    MetadataRefused,
    Misanswered,
    Misused,
    Nack,
    Requeue,
    SendFailed,
    SomeFailed,
    WorkerDied,
)
from tsdb.parallel_consumer.executors import Done, Executor, OnLoop, OnTheOwner, OnThreads, WithCallback
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Order, Place, by_key, by_partition, unordered
from tsdb.parallel_consumer.outlet import Outlet, OutRecord, TopicOutlet
from tsdb.parallel_consumer.policy import Action, Backoff, ErrorPolicy
from tsdb.parallel_consumer.processes import OnProcesses
from tsdb.parallel_consumer.record import Headers, Partition, Position, Record
from tsdb.parallel_consumer.source import AtomicSource, ColumnSource, Polled, PolledColumns, Source, SourceListener
from tsdb.parallel_consumer.status import PartitionStatus, Stall, Status

__all__ = [
    "Action",
    "AtomicSource",
    "Backoff",
    "BatchSize",
    "ColumnSource",
    "Columns",
    "CommitFailed",
    "ConsumerError",
    "ConsumerMetrics",
    "Context",
    "Control",
    "Deferral",
    "DeferralLost",
    "Done",
    "ErrorPolicy",
    "Executor",
    "Fenced",
    "GivenUp",
    "HandlerStopped",
    "Headers",
    "InBatches",
    "InColumns",
    "MetadataRefused",
    "Misanswered",
    "Misused",
    "Nack",
    "OnLoop",
    "OnProcesses",
    "OnTheOwner",
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
    "PolledColumns",
    "Position",
    "Record",
    "Requeue",
    "SendFailed",
    "SomeFailed",
    "Source",
    "SourceListener",
    "Stall",
    "Status",
    "TopicOutlet",
    "WithCallback",
    "WorkerDied",
    "by_key",
    "by_partition",
    "unordered",
]
