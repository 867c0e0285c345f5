"""A read that the store of this process can answer from memory goes to that store alone. Other reads go to
all sources.
"""

from __future__ import annotations

import pytest

from support.servers.queriers import TOPIC_ID, context, one_store, select, sources_over
from support.servers.seams import END_MS, NUMBERS, START_MS, WINDOW_MS, Seam
from tsdb.client import ReadOptions, SelectQuery
from tsdb.head import gather_many
from tsdb.head.state import Hole
from tsdb.model.errors import HoleInRange, OutOfCoverage, TsdbError, Unavailable
from tsdb.query.service import QuerierService
from tsdb.query.stores.local import LocalStore
from tsdb.reader.read_call import SelectLimits
from tsdb.v1 import reader_pb2

SELECTOR = '{job="test"}'


@pytest.fixture
def seam() -> Seam:
    return Seam()


@pytest.fixture
def routed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reads for which stores were chosen."""
    calls: list[str] = []

    def listed(name: str) -> None:
        original = getattr(LocalStore, name)

        def called(*arguments: object) -> object:
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(LocalStore, name, called)

    listed("select")
    listed("labels")
    return calls


def read(service: QuerierService, start_ms: int, options: ReadOptions | None = None) -> int:
    """The samples of a select and of a lookup from a time on."""
    found = select(service, SelectQuery(SELECTOR, start_ms, END_MS, options=options))
    request = reader_pb2.LabelValuesRequest(name="instance", start_ms=start_ms)
    if options is not None:
        request.options.partitions.extend(options.partitions)
    assert list(service.LabelValues(request, context()).values) == ["i0", "i1"]
    return found.samples


def expected(seam: Seam, start_ms: int) -> int:
    return sum(map(len, seam.twin.samples(NUMBERS, start_ms, END_MS).values()))


def test_a_read_that_memory_answers_chooses_no_store(seam: Seam, routed: list[str]) -> None:
    assert read(seam.service, seam.coverage_ms) == expected(seam, seam.coverage_ms)
    assert routed == []


def test_a_read_that_begins_before_memory_goes_to_all_sources(seam: Seam, routed: list[str]) -> None:
    assert read(seam.service, START_MS) == expected(seam, START_MS)
    assert set(routed) == {"select", "labels"}


def test_a_read_of_chosen_partitions_goes_to_all_sources(seam: Seam, routed: list[str]) -> None:
    assert read(seam.service, seam.coverage_ms, ReadOptions(partitions=[0])) == expected(seam, seam.coverage_ms)
    assert set(routed) == {"select", "labels"}


@pytest.mark.parametrize(("partitions", "topic_id"), [(2, TOPIC_ID), (1, "another")])
def test_a_store_without_all_partitions_of_the_log_does_not_answer_alone(
    seam: Seam, partitions: int, topic_id: str
) -> None:
    stores = one_store(seam.served)
    sources = sources_over(stores, None, window_ms=WINDOW_MS, partitions=partitions, topic_id=topic_id)
    with pytest.raises(Unavailable):
        read(QuerierService(sources, SelectLimits()), seam.coverage_ms)


@pytest.mark.parametrize("why", [OutOfCoverage, HoleInRange])
def test_without_a_history_the_refusal_of_memory_is_final(
    seam: Seam, routed: list[str], monkeypatch: pytest.MonkeyPatch, why: type[TsdbError]
) -> None:
    if why is HoleInRange:
        seam.head.contents.holes.add([Hole(END_MS - 5, END_MS, "corrupt_record", seam.head.next_offset)])
        seam.head.contents.change_locked()
    monkeypatch.delattr(gather_many, "collect_since_kernel")  # It is refused before samples are gathered.
    service = QuerierService(sources_over(one_store(seam.served), None, window_ms=WINDOW_MS), SelectLimits())
    with pytest.raises(why):
        read(service, START_MS if why is OutOfCoverage else seam.coverage_ms)
    assert routed == []
