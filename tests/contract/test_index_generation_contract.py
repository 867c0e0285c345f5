"""A raised generation reaches every querier before its job ends, on the embedded log and on a real broker alike."""

from __future__ import annotations

from support.data.heads import canonical_of, id_of
from support.fakes.fake_history import FakeHistory
from support.servers.logs import LogFactory
from tsdb.history.interface import Loaded
from tsdb.log.index_generation import BEFORE_THE_FIRST, generation_key, last_generation, raise_generation
from tsdb.log.interface import META, METRICS
from tsdb.log.meta import read_meta, write_meta
from tsdb.model.clock import SystemClock
from tsdb.model.meta import MetaSettings
from tsdb.model.window import index_epoch
from tsdb.query.history.index import Choice, HistoryIndex
from tsdb.query.history.index_generation import IndexGeneration
from tsdb.selector.selectors import parse_selector

NOW_MS = 1_700_000_000_000
SETTINGS = MetaSettings(2)


def test_a_range_queried_before_an_import_has_its_series_when_the_job_ends(log_factory: LogFactory) -> None:
    log_factory.create()
    of_job, of_querier = log_factory.open(), log_factory.open()
    write_meta(of_job, SETTINGS)
    topic_id, history = of_job.topic_id(METRICS), FakeHistory()
    index = HistoryIndex(history, IndexGeneration(of_querier, topic_id, SystemClock()).now)
    choice, loaded = Choice(parse_selector("m_1")), {0: Loaded(topic_id, 0, 100, NOW_MS)}

    def ids() -> list[int]:
        return [int(one) for one in index.find(choice, NOW_MS - 5, NOW_MS + 5, loaded, {0: 50})[0].series_ids]

    assert ids() == []
    history.announce(canonical_of(1), id_of(1), index_epoch(id_of(1), NOW_MS), 0)
    raise_generation(of_job, "import-1", SystemClock())
    assert ids() == [id_of(1)]
    assert read_meta(of_querier) == SETTINGS


def test_each_job_of_one_log_raises_another_generation(log_factory: LogFactory) -> None:
    log_factory.create()
    log = log_factory.open()
    topic_id = log.topic_id(METRICS)
    assert last_generation(log, topic_id) is None
    log.append_sync(META, 0, b"{}", key=generation_key("another log"))
    assert last_generation(log, topic_id) is None
    seen = [BEFORE_THE_FIRST]
    for _ in range(2):
        log.append_sync(META, 0, b"{}", key=generation_key(topic_id))
        seen.append(last_generation(log, topic_id) or BEFORE_THE_FIRST)
    assert len(set(seen)) == 3
    high = log.watermarks(META, [0])[0].high
    assert last_generation(log, topic_id, high) is None, "nothing newer"
