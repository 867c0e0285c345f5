"""Key-ordered parallel consumer: handles many records of a partition at once, in order by key, with exact commits.

Imports only tsdb.chain from this project. `tsdb.parallel_consumer.kafka` connects it to Kafka;
`tsdb.parallel_consumer.testing` has a broker in memory and a seeded scheduler for tests of handlers.
"""

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.consumer import ParallelConsumer
from tsdb.parallel_consumer.control import Control
from tsdb.parallel_consumer.errors import (
    CommitFailed,
    ConsumerError,
    DeadLettered,
    DeferralLost,
    Fenced,
    HandlerStopped,
    InvalidConfig,
    InvalidResult,
    MetadataRefused,
    Nack,
    Requeue,
    SendFailed,
    SomeFailed,
    TopicRecreated,
    WorkerDied,
)
from tsdb.parallel_consumer.executors.batch_executors import BatchExecutor, ColumnExecutor
from tsdb.parallel_consumer.executors.batching import BatchSize
from tsdb.parallel_consumer.executors.context import Context, Deferral
from tsdb.parallel_consumer.executors.process_executor import ProcessExecutor
from tsdb.parallel_consumer.executors.record_executors import (
    AsyncioExecutor,
    CallbackExecutor,
    Done,
    InlineExecutor,
    ThreadExecutor,
)
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Order, SpecialLane, by_key, by_partition, unordered
from tsdb.parallel_consumer.policy import Action, Backoff, ErrorPolicy
from tsdb.parallel_consumer.producer import OutRecord, Producer, TopicProducer
from tsdb.parallel_consumer.record import Headers, Position, Record, TopicPartition
from tsdb.parallel_consumer.scheduling.executor import Executor
from tsdb.parallel_consumer.scheduling.stall import Stall
from tsdb.parallel_consumer.source import AtomicSource, ColumnSource, Polled, PolledColumns, Source, SourceListener
from tsdb.parallel_consumer.status import PartitionStatus, Status

__all__ = [
    "Action",
    "AsyncioExecutor",
    "AtomicSource",
    "Backoff",
    "BatchExecutor",
    "BatchSize",
    "CallbackExecutor",
    "ColumnExecutor",
    "ColumnSource",
    "CommitFailed",
    "ConsumerError",
    "ConsumerMetrics",
    "Context",
    "Control",
    "DeadLettered",
    "Deferral",
    "DeferralLost",
    "Done",
    "ErrorPolicy",
    "Executor",
    "Fenced",
    "HandlerStopped",
    "Headers",
    "InlineExecutor",
    "InvalidConfig",
    "InvalidResult",
    "MetadataRefused",
    "Nack",
    "Options",
    "Order",
    "OutRecord",
    "ParallelConsumer",
    "PartitionStatus",
    "Polled",
    "PolledColumns",
    "Position",
    "ProcessExecutor",
    "Producer",
    "Record",
    "RecordColumns",
    "Requeue",
    "SendFailed",
    "SomeFailed",
    "Source",
    "SourceListener",
    "SpecialLane",
    "Stall",
    "Status",
    "ThreadExecutor",
    "TopicPartition",
    "TopicProducer",
    "TopicRecreated",
    "WorkerDied",
    "by_key",
    "by_partition",
    "unordered",
]
