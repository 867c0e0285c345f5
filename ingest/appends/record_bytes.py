"""Record bytes: the largest record that the gateway makes, learned from the broker's refusals."""

from __future__ import annotations

import structlog

from tsdb.ops.metrics import counter

# Lower bound of the learned size: below it one request with long packs would needlessly shrink all other records.
RECORD_BYTES_LEAST = 16 * 1024

_halved = counter("tsdb_ingest_records_halved_total", "Log records that the broker found too large.")

logger = structlog.get_logger(__name__)


class RecordBytes:
    """`max`: bytes of a record at most. Never raised, so a race without a lock costs at most one more refusal."""

    def __init__(self, bytes_max: int) -> None:
        self.max = bytes_max

    def too_large(self, size: int) -> None:
        """The broker has refused a record of `size` bytes."""
        _halved.inc()
        learned = max(size // 2, RECORD_BYTES_LEAST)
        if learned < self.max:
            logger.warning("broker accepts only smaller records", record_bytes=size, record_bytes_max=learned)
            self.max = learned
