"""Sends log lines of the client library to standard logging: one line a minute for each cause and client.

By default the library writes to stderr, and a client whose brokers do not answer writes a line at each connection
attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tsdb.parallel_consumer.clock import SystemClock
from tsdb.parallel_consumer.limited_log import LimitedLog

NAME = "tsdb.parallel_consumer.kafka"


class _Limited(logging.Filter):
    """Passes records to the limited log and drops them otherwise. Record arguments are (facility, client, text)."""

    def __init__(self) -> None:
        super().__init__()
        self._log = LimitedLog(SystemClock())

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        facility = str(arguments[0]) if arguments else ""
        self._log.log(record.levelno, f"library_{facility}", None, "kafka: %s", record.getMessage())
        self._log.flush()
        return False


_logger = logging.getLogger(NAME)
_logger.addFilter(_Limited())


def with_logger(config: Mapping[str, object]) -> dict[str, object]:
    """The settings, with the library's log lines limited; a caller's own logger stays."""
    return {"logger": _logger, **config}
