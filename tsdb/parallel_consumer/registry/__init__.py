"""Registry: acknowledges a record as soon as a durable copy of it is stored in a wait topic.

`RegistrySource` wraps a source; `ExpiryScanner` sends copies that were never finished to the dead letters.
"""

from tsdb.parallel_consumer.registry.expiry import ExpiryScanner
from tsdb.parallel_consumer.registry.metrics import RegistryMetrics
from tsdb.parallel_consumer.registry.source import RegistryOptions, RegistrySource
from tsdb.parallel_consumer.registry.wait_record import WaitRecord, WaitRecordRefused, read_wait_record

__all__ = [
    "ExpiryScanner",
    "RegistryMetrics",
    "RegistryOptions",
    "RegistrySource",
    "WaitRecord",
    "WaitRecordRefused",
    "read_wait_record",
]
