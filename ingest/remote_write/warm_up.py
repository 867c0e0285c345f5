"""Warm-up of remote write: compile its kernels, or load them from the cache, before the first request."""

from __future__ import annotations

from ingest.limits import IngestLimits
from ingest.remote_write.wire import VERSION_1, VERSION_2, decode_wire

_SAMPLE = b"\x12\x02\x10\x01"  # TimeSeries.samples: one sample at 1 ms.


def warm_up() -> None:
    """Decode an invented request of each version."""
    decode_wire(b"\x0a\x04" + _SAMPLE, VERSION_1, IngestLimits(), _reserve)
    decode_wire(b"\x2a\x04" + _SAMPLE, VERSION_2, IngestLimits(), _reserve)


def _reserve(size: int) -> None:
    """No memory is shared here."""
