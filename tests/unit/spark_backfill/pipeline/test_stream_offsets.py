"""Offsets of the streaming chunk stage: equal states are equal text, and a query begins at the higher progress."""

from __future__ import annotations

import json

import pytest

from spark_backfill.building.items import BaseItem, LateItem
from spark_backfill.pipeline.offsets import Base, PartitionOffset, PipelineOffset, adopted, is_done, offset_of
from tsdb.chunks.progress import Progress
from tsdb.model.errors import CorruptData, UnknownVersion

OFFSET = PipelineOffset(
    "the-log",
    2,
    (
        PartitionOffset(Progress(70, 800, 400), (Base(0, 400), Base(400, 800, 40, 50)), ((50, 60), (60, 70))),
        PartitionOffset(Progress(5, 400)),
    ),
)


def test_an_offset_comes_back_from_its_json_and_gives_the_same_text_again() -> None:
    text = json.dumps(OFFSET.as_json())
    assert offset_of(json.loads(text)) == OFFSET
    assert json.dumps(offset_of(json.loads(text)).as_json()) == text


def test_the_work_of_a_batch_follows_from_the_offset_at_its_end_windows_first() -> None:
    assert list(OFFSET.items()) == [
        BaseItem(0, 0, 400),
        BaseItem(0, 400, 800, 40, 50),
        LateItem(0, 50, 60),
        LateItem(0, 60, 70),
    ]
    assert list(PipelineOffset().items()) == []


def test_a_new_query_has_no_work_and_takes_the_higher_progress() -> None:
    found = {0: Progress(65, 1200, 400), 1: Progress(9, 0)}
    life = adopted(OFFSET, "the-log", found)
    assert life.life == OFFSET.life + 1
    assert list(life.items()) == []
    assert life.progress == {0: Progress(70, 1200, 400), 1: Progress(9, 400)}


def test_a_first_life_begins_where_the_group_stands() -> None:
    life = adopted(PipelineOffset(), "the-log", {0: Progress(3, 400)})
    assert (life.topic_id, life.life, life.progress) == ("the-log", 1, {0: Progress(3, 400)})


@pytest.mark.parametrize(
    ("by", "done"),
    [(Progress(5, 10), True), (Progress(6, 11), True), (Progress(4, 11), False), (Progress(6, 9), False)],
)
def test_progress_is_done_when_neither_position_nor_windows_are_behind(by: Progress, done: bool) -> None:
    assert is_done(Progress(5, 10), by) is done


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({}, UnknownVersion),
        ({"version": 2}, UnknownVersion),
        ({"version": 1}, CorruptData),
        ({"version": 1, "topic_id": "x", "life": 1, "partitions": [{"position": 1}]}, CorruptData),
        ({"version": 1, "topic_id": "x", "life": "?", "partitions": []}, CorruptData),
    ],
)
def test_an_invalid_offset_is_refused(data: dict[str, object], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        offset_of(data)
