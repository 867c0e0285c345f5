"""The series of history: selected as in memory, read once, and read again only when memory begins above the part's
loaded position, or when a job has brought series around the log."""

from __future__ import annotations

import numpy as np
import pytest

from support.data.heads import canonical_of, id_of
from support.fakes.fake_history import PLACEMENT, FakeHistory
from tsdb.history.interface import Loaded
from tsdb.model.errors import CorruptData, Overloaded, Unavailable
from tsdb.model.labels import series_id
from tsdb.model.resolution import derived_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.model.window import EPOCH_MS, index_epoch
from tsdb.query.history.index import EPOCHS_MAX, Choice, HistoryIndex
from tsdb.query.history.parts import EPOCHS_KEPT_MAX
from tsdb.selector.selectors import parse_selector

NOW_MS = 1_000 * EPOCH_MS
NUMBERS = range(12)


def partition_of(number: int) -> int:
    return number // 3 % 2


@pytest.fixture
def history() -> FakeHistory:
    made = FakeHistory()
    for number in NUMBERS:
        made.announce(canonical_of(number), id_of(number), index_epoch(id_of(number), NOW_MS), partition_of(number))
    return made


def loaded(*positions: int) -> dict[int, Loaded]:
    return {partition: Loaded("topic", partition, position, 0) for partition, position in enumerate(positions)}


def found(
    index: HistoryIndex, choice: Choice, span: tuple[int, int] = (NOW_MS - 5, NOW_MS + 5), since: int = 0
) -> dict[int, list[int]]:
    """Series numbers by partition, from an index loaded through offset 100 of both partitions."""
    ids = {id_of(number): number for number in NUMBERS}
    answer = index.find(choice, *span, loaded(100, 100), {0: since, 1: since})
    for series in answer.values():
        assert series.labels == [canonical_of(ids[int(one)]) for one in series.series_ids]
        assert series.pack_ids == sorted({PLACEMENT.place(canonical).pack_id for canonical in series.labels})
        assert (np.diff(series.series_ids.astype(object)) > 0).all()
    return {partition: sorted(ids[int(one)] for one in series.series_ids) for partition, series in answer.items()}


SELECTORS = {
    "m_1": [1, 4, 7, 10],
    'm_1{instance="i2"}': [7],
    '{__name__=~"m_[02]",instance!="i0"}': [3, 5, 6, 8, 9, 11],
    '{__name__!="m_0",instance="i1"}': [4, 5],
    '{job="test",__name__!~"m_.*"}': [],
    "m_9": [],
}


@pytest.mark.parametrize("selector", SELECTORS)
def test_matchers_choose_as_in_memory_and_each_partition_has_its_own(history: FakeHistory, selector: str) -> None:
    got = found(HistoryIndex(history), Choice(parse_selector(selector)))
    want = SELECTORS[selector]
    assert got == {p: [number for number in want if partition_of(number) == p] for p in (0, 1)}


def test_only_the_metrics_that_can_match_are_read(history: FakeHistory) -> None:
    found(HistoryIndex(history), Choice(parse_selector('{__name__=~"m_[01]"}')))
    names = {name for _, name in history.announced}
    assert names == {b"m_0", b"m_1", b"m_2"}
    assert history.calls.count("series") == 2 * len({epoch for epoch, _ in history.announced})


def test_ids_choose_in_place_of_matchers_and_names_narrow_the_search(history: FakeHistory) -> None:
    ids = np.array([id_of(4), id_of(0), 99], np.uint64)
    assert found(HistoryIndex(history), Choice((), ids)) == {0: [0], 1: [4]}
    history.calls.clear()
    assert found(HistoryIndex(history), Choice((), ids, frozenset({b"m_1"}))) == {0: [], 1: [4]}
    assert history.calls.count("series") <= 2


def test_no_matchers_choose_every_series(history: FakeHistory) -> None:
    assert found(HistoryIndex(history), Choice(())) == {0: [0, 1, 2, 6, 7, 8], 1: [3, 4, 5, 9, 10, 11]}


def test_a_series_counts_in_its_own_epochs_only(history: FakeHistory) -> None:
    number = 5
    epoch = index_epoch(id_of(number), NOW_MS)
    start_ms = epoch * EPOCH_MS - id_of(number) % EPOCH_MS
    index = HistoryIndex(history)
    choice = Choice((), np.array([id_of(number)], np.uint64))
    for span, there in (
        ((start_ms - 10, start_ms), False),
        ((start_ms - 10, start_ms + 1), True),
        ((start_ms + EPOCH_MS - 1, start_ms + 2 * EPOCH_MS), True),
        ((start_ms + EPOCH_MS, start_ms + EPOCH_MS + 10), False),
    ):
        assert found(index, choice, span)[partition_of(number)] == ([number] if there else [])


def test_found_series_have_the_bounds_of_their_samples_for_any_range(history: FakeHistory) -> None:
    span = (NOW_MS - 300 * EPOCH_MS, NOW_MS + 300 * EPOCH_MS)
    for series in HistoryIndex(history).find(Choice(()), *span, loaded(100, 100), {0: 0, 1: 0}).values():
        assert NOW_MS - 2 * EPOCH_MS <= series.start_ms <= NOW_MS < series.end_ms <= NOW_MS + 2 * EPOCH_MS
        for number in map(int, series.series_ids):
            first = index_epoch(number, NOW_MS) * EPOCH_MS - number % EPOCH_MS
            assert series.start_ms <= first
            assert first + EPOCH_MS <= series.end_ms


def test_a_part_is_valid_until_memory_begins_above_its_loaded_position(history: FakeHistory) -> None:
    index, choice = HistoryIndex(history), Choice(parse_selector("m_1"))
    found(index, choice)
    before = list(history.calls)
    found(index, choice, since=100)
    assert history.calls == before
    index.find(choice, NOW_MS - 5, NOW_MS + 5, loaded(200, 200), {0: 50, 1: 101})
    assert len(history.calls) > len(before)
    again = list(history.calls)
    index.find(choice, NOW_MS - 5, NOW_MS + 5, loaded(200, 200), {0: 200, 1: 200})
    assert history.calls == again


def test_a_part_without_a_loaded_position_of_a_partition_is_read_again(history: FakeHistory) -> None:
    index, choice = HistoryIndex(history), Choice(parse_selector("m_1"))
    index.find(choice, NOW_MS - 5, NOW_MS + 5, loaded(100), {0: 0})
    before = len(history.calls)
    index.find(choice, NOW_MS - 5, NOW_MS + 5, loaded(100, 100), {0: 0, 1: 0})
    assert len(history.calls) > before


IMPORTED = 12


@pytest.mark.parametrize("empty", [False, True], ids=["an epoch with series", "an epoch without any"])
def test_series_of_an_import_are_found_in_a_range_that_was_looked_at_before_it(
    history: FakeHistory, empty: bool
) -> None:
    at_ms, generation = (NOW_MS - 40 * EPOCH_MS if empty else NOW_MS), [0]
    index, choice = HistoryIndex(history, lambda: generation[0]), Choice(parse_selector('m_0{instance="i4"}'))

    def ids() -> list[int]:
        answer = index.find(choice, at_ms - 5, at_ms + 5, loaded(100, 100), {0: 0, 1: 0})
        return [int(one) for series in answer.values() for one in series.series_ids]

    assert ids() == []
    history.announce(canonical_of(IMPORTED), id_of(IMPORTED), index_epoch(id_of(IMPORTED), at_ms), 0)
    generation[0] = 7
    assert ids() == [id_of(IMPORTED)]
    before = list(history.calls)
    assert ids() == [id_of(IMPORTED)]
    assert history.calls == before, "within one generation nothing is read again"


def test_while_the_generation_is_unknown_no_cached_part_is_valid(history: FakeHistory) -> None:
    index, choice = HistoryIndex(history, lambda: None), Choice(parse_selector("m_1"))
    for _ in range(2):
        before = len(history.calls)
        assert found(index, choice) == {0: [1, 7], 1: [4, 10]}
        assert len(history.calls) > before


def test_the_epochs_kept_are_bounded(history: FakeHistory) -> None:
    index, choice = HistoryIndex(history), Choice(parse_selector("m_1"))
    for number in range(EPOCHS_KEPT_MAX + 10):
        index.find(choice, number * EPOCH_MS, number * EPOCH_MS + 1, loaded(100, 100), {0: 0})
    before = history.calls.count("metric_names")
    index.find(choice, 0, 1, loaded(100, 100), {0: 0})
    assert history.calls.count("metric_names") > before, "what was not asked for last has left"


def test_the_series_kept_are_bounded(history: FakeHistory) -> None:
    index = HistoryIndex(history, series_kept_max=4)
    for _ in range(2):
        assert found(index, Choice(())) == {0: [0, 1, 2, 6, 7, 8], 1: [3, 4, 5, 9, 10, 11]}
    found(index, Choice(parse_selector("m_0")))
    before = history.calls.count("series")
    found(index, Choice(parse_selector("m_2")))
    assert history.calls.count("series") > before, "what was not asked for last has left"


def test_a_failure_of_history_leaves_nothing_behind(history: FakeHistory) -> None:
    index, choice = HistoryIndex(history), Choice(parse_selector("m_1"))
    history.fail = [Unavailable("away")]
    with pytest.raises(Unavailable):
        found(index, choice)
    assert found(index, choice) == {0: [1, 7], 1: [4, 10]}


def test_labels_that_are_not_canonical_are_corrupt(history: FakeHistory) -> None:
    rows = history.announced.setdefault((index_epoch(3, NOW_MS), b"m_1"), {})
    rows[3] = 1, 0, b"__name__\xffm_1\xffno value"
    with pytest.raises(CorruptData, match="1 of"):
        found(HistoryIndex(history), Choice((Matcher(MatchType.EQUAL, "__name__", "m_1"),)))


def test_a_range_of_too_many_epochs_is_refused(history: FakeHistory) -> None:
    with pytest.raises(Overloaded, match=f"limit is {EPOCHS_MAX}") as caught:
        found(HistoryIndex(history), Choice(()), (NOW_MS - EPOCHS_MAX * EPOCH_MS, NOW_MS))
    assert caught.value.reason == "epochs_limit"
    assert history.calls == []


def test_derived_series_are_found_by_selectors_that_name_their_label_alone(history: FakeHistory) -> None:
    derived = derived_labels(canonical_of(1), "5m", "sum")
    history.announce(derived, series_id(derived), index_epoch(series_id(derived), NOW_MS), partition_of(1))
    index = HistoryIndex(history)

    def ids(choice: Choice) -> set[int]:
        answer = index.find(choice, NOW_MS - 5, NOW_MS + 5, loaded(100, 100), {0: 0, 1: 0})
        return {int(one) for series in answer.values() for one in series.series_ids}

    all_others = {id_of(number) for number in NUMBERS}
    assert ids(Choice(())) == all_others
    assert ids(Choice(parse_selector('{__name__=~".+"}'))) == all_others
    assert ids(Choice(parse_selector("m_1"))) == {id_of(number) for number in SELECTORS["m_1"]}
    assert ids(Choice(parse_selector('m_1{__resolution__="5m",__aggr__="sum"}'))) == {series_id(derived)}
    assert ids(Choice((), derived=True)) == {*all_others, series_id(derived)}
    assert ids(Choice((), np.array([series_id(derived)], np.uint64))) == {series_id(derived)}
