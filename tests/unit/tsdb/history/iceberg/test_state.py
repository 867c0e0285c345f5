"""A snapshot's state survives its properties, and a broken one is an error by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from support.data.table_rows import state
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.iceberg.state import state_of
from tsdb.model.errors import CorruptData, UnknownVersion

STATE = replace(state(3), holes=(HoleRecord(1, (1 << 64) - 1, -5, 7, "chunks_trimmed", 9),), holes_total=201)


def snapshot_with(properties: dict[str, str]) -> Snapshot:
    """A snapshot as a catalog has it."""
    summary = Summary(Operation.APPEND, **properties)
    return Snapshot.model_validate({"snapshot-id": 1, "manifest-list": "x", "summary": summary})


def test_a_state_comes_back_from_its_properties() -> None:
    for one in (STATE, STATE.accepting(loss.hole for loss in STATE.losses())):
        assert state_of(snapshot_with(one.properties())) == one


@pytest.mark.parametrize("name", [name for name in STATE.properties() if name != "tsdb.format"])
def test_a_state_without_a_property_is_corrupt(name: str) -> None:
    properties = STATE.properties()
    del properties[name]
    with pytest.raises(CorruptData, match="does not say what it holds") as corrupt:
        state_of(snapshot_with(properties))
    assert corrupt.value.reason == "tables_corrupt"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tsdb.emission", "one"),
        ("tsdb.chunks-offsets", "{"),
        ("tsdb.chunks-offsets", "[]"),
        ("tsdb.cut", '{"0": 5}'),
        ("tsdb.cut", '{"0": [1, 2, 3]}'),
        ("tsdb.holes", "[[1, 2]]"),
        ("tsdb.holes-total", ""),
        ("tsdb.holes-accepted", "[1]"),
    ],
)
def test_a_property_that_is_no_state_is_corrupt(name: str, value: str) -> None:
    with pytest.raises(CorruptData):
        state_of(snapshot_with({**STATE.properties(), name: value}))


def test_a_snapshot_of_a_newer_writer_is_not_guessed() -> None:
    with pytest.raises(UnknownVersion, match="is of format 2"):
        state_of(snapshot_with({**STATE.properties(), "tsdb.format": "2"}))
