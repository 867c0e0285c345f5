"""One line of each cause is written a minute, with the number of suppressed lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tsdb.ops.logs import CAUSES_MAX, RepeatFilter, configure_logging, get_logger


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out = io.StringIO()
    configure_logging(json=True, stream=out)
    yield out
    root.handlers[:], root.level = handlers, level


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_warning_that_repeats_is_written_once_a_minute(stream: io.StringIO) -> None:
    log = get_logger("test.repeats")
    for records in range(445):
        log.warning("appends refused", records=records, reason="disk_full", error=f"attempt {records}")
    assert [line["records"] for line in lines(stream)] == [0]


def test_causes_are_told_apart_by_event_reason_and_partition(stream: io.StringIO) -> None:
    log = get_logger("test.repeats")
    for _ in range(3):
        for partition in (0, 1):
            for reason in ("a", "b"):
                log.warning("partition waits", partition=partition, reason=reason)
        log.error("partition waits", partition=0, reason="a")
        log.info("nothing is held back below a warning")
    assert len(lines(stream)) == 5 + 3


def test_a_library_that_repeats_itself_is_held_back_too(stream: io.StringIO) -> None:
    for number in range(100):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received: %d", number)
    assert len(lines(stream)) == 1


def record(message: Any) -> logging.LogRecord:
    return logging.LogRecord("x", logging.WARNING, "x.py", 1, message, (), None)


def test_the_next_line_says_how_many_were_held_back() -> None:
    now = [0.0]
    repeats = RepeatFilter(60.0, lambda: now[0])
    assert [repeats.filter(record({"event": "e"})) for _ in range(4)] == [True, False, False, False]
    now[0] = 60.0
    ours, plain = record({"event": "e"}), record("text")
    assert repeats.filter(ours)
    assert ours.msg == {"event": "e", "held_back": 3}
    assert repeats.filter(plain)
    assert plain.msg == "text"
    now[0] = 120.0
    again = record({"event": "e"})
    assert repeats.filter(again)
    assert again.msg == {"event": "e"}


def test_causes_remembered_are_bounded() -> None:
    repeats = RepeatFilter(60.0, lambda: 0.0)
    assert all(repeats.filter(record({"event": str(number)})) for number in range(CAUSES_MAX + 1))
    assert repeats.filter(record({"event": "0"}))
    assert not repeats.filter(record({"event": str(CAUSES_MAX)}))
