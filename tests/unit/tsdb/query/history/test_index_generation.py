"""The generation of history's index: read at most twice a second, and unknown while the log does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from support.servers.logs import WITHIN_S, LogFactory
from support.servers.queriers import TOPIC_ID, one_store, select
from support.servers.seams import END_MS, START_MS, WINDOW_MS, Seam
from tsdb.client import SelectQuery
from tsdb.log.index_generation import POLL_EVERY_S, raise_generation
from tsdb.log.interface import META, METRICS, Log, Watermarks
from tsdb.log.meta import write_meta
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable
from tsdb.model.meta import MetaSettings
from tsdb.query.history.index import HistoryIndex
from tsdb.query.history.index_generation import AGAIN_S, IndexGeneration
from tsdb.query.service import QuerierService
from tsdb.query.sources import HistorySource, Sources
from tsdb.reader.read_call import SelectLimits

POLL_MS = int(POLL_EVERY_S * 1000)


class Watched:
    """A log that counts requests for high watermarks; `before` is called first."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.asked = 0
        self.read = 0
        self.before: Callable[[], None] = lambda: None

    def high_watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        self.asked += 1
        self.before()
        return self.log.high_watermarks(topic, partitions)

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        return self.log.watermarks(topic, partitions)

    def reader(self, *given: Any, **named: Any) -> Any:
        self.read += 1
        return self.log.reader(*given, **named)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        logs.create()
        made = logs.open()
        write_meta(made, MetaSettings(2))
        yield made


def of(watched: Watched, clock: ManualClock) -> IndexGeneration:
    return IndexGeneration(cast(Log, watched), watched.log.topic_id(METRICS), clock)


def away() -> None:
    raise Unavailable("away", reason="log_unavailable")


def test_the_end_of_meta_is_polled_and_meta_is_read_when_it_has_grown(log: Log) -> None:
    watched, clock = Watched(log), ManualClock()
    generation = of(watched, clock)
    assert [generation.now() for _ in range(3)] == [0, 0, 0]
    assert (watched.asked, watched.read) == (1, 1), "its end"
    clock.advance(POLL_MS)
    assert generation.now() == 0
    assert (watched.asked, watched.read) == (2, 1), "nothing came"
    raise_generation(log, "job", ManualClock())
    assert generation.now() == 0, "known until the next look"
    clock.advance(POLL_MS)
    raised = generation.now()
    assert raised != 0
    assert watched.read == 2
    write_meta(log, MetaSettings(2))
    clock.advance(POLL_MS)
    assert generation.now() == raised


def test_while_the_log_does_not_answer_the_generation_is_unknown(log: Log) -> None:
    watched, clock = Watched(log), ManualClock()
    generation = of(watched, clock)
    assert generation.now() == 0
    watched.before = away
    clock.advance(POLL_MS)
    assert generation.now() is None
    asked = watched.asked
    clock.advance(POLL_MS)
    assert generation.now() is None
    assert watched.asked == asked, "not asked with every read"
    watched.before = lambda: None
    raise_generation(log, "job", ManualClock())
    clock.advance(int(AGAIN_S * 1000))
    assert generation.now() == log.watermarks(META, [0])[0].high


def test_of_a_log_that_does_not_answer_one_caller_waits(log: Log) -> None:
    watched, clock = Watched(log), ManualClock()
    generation = of(watched, clock)
    watched.before = away
    assert generation.now() is None
    asked, answer = threading.Event(), threading.Event()

    def slow() -> None:
        asked.set()
        assert answer.wait(WITHIN_S)

    watched.before = slow
    clock.advance(int(AGAIN_S * 1000))
    first = threading.Thread(target=generation.now)
    first.start()
    assert asked.wait(WITHIN_S)
    assert generation.now() is None, "the second does not wait"
    answer.set()
    first.join(WITHIN_S)
    assert generation.now() == 0


def test_a_read_that_memory_answers_alone_never_reads_the_generation() -> None:
    seam, asked = Seam(), []

    def generation() -> int:
        asked.append(1)
        return 0

    past = HistorySource(seam.history, HistoryIndex(seam.history, generation), WINDOW_MS)
    service = QuerierService(Sources(one_store(seam.served), TOPIC_ID, range(1), past), SelectLimits())
    select(service, SelectQuery('{job="test"}', seam.coverage_ms, END_MS))
    assert asked == []
    select(service, SelectQuery('{job="test"}', START_MS, END_MS))
    assert asked == [1]
