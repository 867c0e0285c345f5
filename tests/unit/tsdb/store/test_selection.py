"""Selections: cached while a search would find the same, and no longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.data.heads import id_of, new_head, register
from tsdb.answer.answer import AnswerSeries
from tsdb.answer.spec import SelectSpec
from tsdb.head.head import Head
from tsdb.model.errors import Overloaded
from tsdb.reader.read_call import SelectLimits
from tsdb.selector.selectors import parse_selector
from tsdb.store.selection import Selection, Selections

LIMITS = SelectLimits()


def query(selector: str, *, labels: bool = True) -> SelectSpec:
    return SelectSpec(parse_selector(selector), None, 0, 1, 0, 0, 0, columns=True, labels=labels, partial=False)


def select(selections: Selections, heads: list[Head], asked: SelectSpec, limits: SelectLimits = LIMITS) -> Selection:
    found = selections.select(heads, asked, limits)
    selections.remember(heads, asked, found)
    return found


def blocks(selection: Selection) -> list[AnswerSeries]:
    return [part.series for part in selection.parts]


def ids(selection: Selection) -> list[list[int]]:
    return [block.series_ids.tolist() for block in blocks(selection)]


def heads_of(*series: int) -> list[Head]:
    return [new_head(series=count) for count in series]


def test_series_of_each_head_come_with_ids_ascending_and_labels() -> None:
    heads = heads_of(4, 0, 1)
    selection = select(Selections(), heads, query('{__name__="m_0"}'))
    assert ids(selection) == [sorted([id_of(0), id_of(3)]), [], [id_of(0)]]
    for head, refs, block in zip(heads, selection.refs.parts(), blocks(selection), strict=True):
        assert head.index.series_ids_of(refs).tolist() == block.series_ids.tolist()
        assert block.labels is not None
        joined, lengths = head.index.labels_of(refs)
        assert (block.labels.joined, block.labels.lengths.tolist()) == (joined, lengths.tolist())


def test_a_selection_is_cached_until_a_series_comes_in_any_head() -> None:
    heads, selections = heads_of(2, 2), Selections()
    first = select(selections, heads, query('{__name__="m_0"}'))
    assert select(selections, heads, query('{__name__="m_0"}')) is first
    register(heads[1], [3])
    second = select(selections, heads, query('{__name__="m_0"}'))
    assert ids(second) == [[id_of(0)], sorted([id_of(0), id_of(3)])]


def test_a_series_that_left_is_not_in_a_cached_selection() -> None:
    heads, selections = heads_of(4), Selections()
    refs = select(selections, heads, query('{__name__="m_0"}')).refs.refs
    heads[0].index.forget(refs[:1])
    assert ids(select(selections, heads, query('{__name__="m_0"}'))) == [
        heads[0].index.series_ids_of(refs[1:]).tolist()
    ]


def test_other_heads_and_other_options_are_other_selections() -> None:
    heads, selections = heads_of(1), Selections()
    with_labels = select(selections, heads, query('{__name__="m_0"}'))
    without = select(selections, heads, query('{__name__="m_0"}', labels=False))
    assert (blocks(with_labels)[0].labels is not None, blocks(without)[0].labels is not None) == (True, False)
    fresh = heads_of(1)
    assert select(selections, fresh, query('{__name__="m_0"}')) is not with_labels
    assert ids(select(selections, heads_of(1, 1), query('{__name__="m_0"}'))) == [[id_of(0)], [id_of(0)]]


def test_ids_are_looked_up_each_time() -> None:
    heads, selections = heads_of(2), Selections()
    asked = replace(query("{a='b'}"), matchers=(), series_ids=np.array(sorted([id_of(1), 77]), np.uint64))
    assert ids(select(selections, heads, asked)) == [[id_of(1)]]
    assert selections.bytes == 0


def test_too_many_series_are_refused_cached_or_not() -> None:
    heads, selections = heads_of(3, 3), Selections()
    asked = query('{job="test"}')
    for _ in range(2):
        with pytest.raises(Overloaded) as over:
            select(selections, heads, asked, SelectLimits(series_max=5))
        assert (over.value.reason, over.value.metadata["asked"]) == ("series_limit", "6")
        select(selections, heads, asked, SelectLimits(series_max=6))


def test_memory_stays_within_its_bound_and_the_oldest_go_first() -> None:
    heads = heads_of(3)
    one = Selections()
    select(one, heads, query('{__name__="m_0"}'))
    selections = Selections(bytes_max=2 * one.bytes + 10)
    kept = [select(selections, heads, query(f'{{__name__="m_{number}"}}')) for number in (0, 1, 2)]
    assert selections.bytes <= 2 * one.bytes + 10
    again = [select(selections, heads, query(f'{{__name__="m_{number}"}}')) for number in (2, 1)]
    assert again[0] is kept[2]
    assert again[1] is kept[1]
    whole = select(selections, heads, query('{job="test"}'))
    assert select(selections, heads, query('{job="test"}')) is not whole, "one of all the room is not kept"
