"""Registry: the survival mode in which a record is acknowledged once a durable copy of it waits to be processed.

`RegistrySource` stands before a source; `ExpiryScanner` sends what was never finished to the dead letters.
"""

from tsdb.parallel_consumer.registry.expiry import ExpiryScanner
from tsdb.parallel_consumer.registry.metrics import RegistryMetrics
from tsdb.parallel_consumer.registry.source import RegistryOptions, RegistrySource
from tsdb.parallel_consumer.registry.wait_record import Waiting, WaitRecordRefused, read_wait_record

__all__ = [
    "ExpiryScanner",
    "RegistryMetrics",
    "RegistryOptions",
    "RegistrySource",
    "WaitRecordRefused",
    "Waiting",
    "read_wait_record",
]
