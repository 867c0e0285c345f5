"""A broker that is away does not flood the logs."""

from __future__ import annotations

import logging

from tsdb.log.kafka.library_log import Seldom


def _record(text: str) -> logging.LogRecord:
    return logging.LogRecord("librdkafka", logging.ERROR, __file__, 1, "%s", (text,), None)


def test_each_kind_passes_once_as_a_warning() -> None:
    seldom = Seldom(every_s=1e9)
    first = _record("FAIL [a] connection refused")
    assert seldom.filter(first)
    assert (first.levelno, first.levelname) == (logging.WARNING, "WARNING")
    assert not seldom.filter(_record("FAIL [b] connection refused"))
    assert seldom.filter(_record("GETPID [a] coordinator load"))


def test_left_out_messages_are_counted() -> None:
    seldom = Seldom(every_s=1e9)
    for _ in range(5):
        seldom.filter(_record("FAIL [a] refused"))
    seldom._every_s = 0.0
    later = _record("FAIL [a] refused")
    assert seldom.filter(later)
    assert later.getMessage() == "FAIL [a] refused (4 more of FAIL left out)"
