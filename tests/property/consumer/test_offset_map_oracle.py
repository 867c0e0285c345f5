"""The offset tracker against a set, and decoded commit metadata against its input."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.examples import examples
from tsdb.parallel_consumer.errors import MetadataRefused
from tsdb.parallel_consumer.offsets.metadata import (
    ATTEMPTS_BYTES_MAX,
    AttemptCounts,
    CommitMetadata,
    decode_metadata,
    encode_metadata,
    map_bytes_max,
)
from tsdb.parallel_consumer.offsets.runs import decode_runs, encode_runs
from tsdb.parallel_consumer.offsets.text import capacity_bytes, from_text, to_text
from tsdb.parallel_consumer.offsets.tracker import OffsetTracker
from tsdb.parallel_consumer.options import UNITS_MAX

TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUv"
GAPS = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 1 << 40))


@dataclass
class Model:
    """Model of a partition: offsets of records in order, and the finished ones."""

    offsets: list[int] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)

    def position(self, next_offset: int) -> int:
        return next((offset for offset in self.offsets if offset not in self.finished), next_offset)


def holds(tracker: OffsetTracker, offset: int) -> bool:
    """Whether the map says that an offset is finished."""
    return any(start <= offset < end for start, end in tracker.finished_runs().tolist())


class TrackerMachine(RuleBasedStateMachine):
    """Records are read in order and end in any order; at times the process restarts from its last commit."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.tracker = OffsetTracker(7)
        self.slots: dict[int, int] = {}
        self.log_end = 7
        self.log: list[int] = []

    @rule(gaps=st.lists(GAPS, min_size=1, max_size=12))
    def append(self, gaps: list[int]) -> None:
        for gap in gaps:
            self.log.append(self.log_end + gap)
            self.log_end += gap + 1

    @rule(count=st.integers(1, 10))
    def read(self, count: int) -> None:
        for offset in [offset for offset in self.log if offset >= self.tracker.next_offset][:count]:
            slot = self.tracker.add(offset)
            if slot is None:
                assert offset in self.model.finished, "a record that was not finished is passed over"
            else:
                assert offset not in self.model.finished, "a record that was finished is done again"
                self.slots[offset] = slot

    @precondition(lambda self: not self.tracker.restored)
    @rule(count=st.integers(1, 10))
    def pass_over(self, count: int) -> None:
        """Records handled inline, where they are read."""
        offsets = [offset for offset in self.log if offset >= self.tracker.next_offset][:count]
        if offsets:
            self.tracker.pass_over(iter(offsets), offsets[-1])
            self.model.finished.update(offsets)

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.slots)))
        self.tracker.finish(self.slots.pop(offset))
        self.model.finished.add(offset)

    @precondition(
        lambda self: (
            self.tracker.next_offset <= self.log_end and not [o for o in self.log if o >= self.tracker.next_offset]
        )
    )
    @rule()
    def reach_end(self) -> None:
        self.tracker.reached(self.log_end)

    @rule()
    def restart(self) -> None:
        position = self.tracker.position
        text = encode_metadata(position, CommitMetadata(self.tracker.finished_runs()), TOPIC_ID)
        self.tracker = OffsetTracker(position, decode_metadata(position, text, TOPIC_ID).finished)
        self.slots.clear()

    @invariant()
    def position_is_the_lowest_unfinished(self) -> None:
        read = [offset for offset in self.log if offset < self.tracker.next_offset]
        expected = next((offset for offset in read if offset not in self.model.finished), self.tracker.next_offset)
        assert self.tracker.position == expected
        assert self.tracker.unfinished == len(self.slots)

    @invariant()
    def the_map_says_exactly_what_is_finished(self) -> None:
        position = self.tracker.position
        for offset in self.log:
            if offset >= position:
                assert holds(self.tracker, offset) == (offset in self.model.finished), offset

    @invariant()
    def runs_are_ascending_and_apart(self) -> None:
        edges = self.tracker.finished_runs().ravel()
        assert (np.diff(edges) > 0).all()
        assert not len(edges) or edges[0] >= self.tracker.position


TestTracker = pytest.mark.slow(TrackerMachine.TestCase)
TestTracker.settings = settings(max_examples=examples(120), stateful_step_count=40)


@given(
    start=st.integers(0, 1 << 50),
    lengths=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), max_size=300),
    touching=st.booleans(),
)
def test_runs_survive_their_encoding(start: int, lengths: list[tuple[int, int]], touching: bool) -> None:
    edges = start + np.cumsum(np.array(lengths, np.int64).reshape(-1, 2).ravel())
    if touching and len(edges):
        edges -= edges[0] - start
    runs = edges.reshape(-1, 2)
    form, data = encode_runs(start, runs)
    assert (decode_runs(start, form, data) == runs).all()


@given(st.binary(max_size=capacity_bytes(1_024)), st.sampled_from([1_024, UNITS_MAX]))
def test_bytes_survive_as_text_within_the_limit(data: bytes, units_max: int) -> None:
    text = to_text(data, units_max)
    assert len(text.encode("utf-16-le")) // 2 <= units_max
    assert from_text(text) == data


TRIES = st.builds(
    AttemptCounts,
    offset=st.integers(100, 100 + (1 << 20)),
    failures=st.integers(0, 1 << 10),
    crashes=st.integers(0, 100),
    running=st.booleans(),
)


@given(st.lists(TRIES, max_size=400, unique_by=lambda one: one.offset))
def test_attempts_survive_up_to_the_room_and_the_most_tried_always(attempts: list[AttemptCounts]) -> None:
    text = encode_metadata(100, CommitMetadata(attempts=attempts), TOPIC_ID)
    decoded = decode_metadata(100, text, TOPIC_ID).attempts
    assert [one.offset for one in decoded] == sorted(one.offset for one in decoded)
    assert set(decoded) <= set(attempts)
    if len(attempts) * 12 < ATTEMPTS_BYTES_MAX:
        assert set(decoded) == set(attempts)
    left_out = set(attempts) - set(decoded)
    assert not left_out or max(one.crashes for one in left_out) <= min(one.crashes for one in decoded)


@given(st.text(max_size=200), st.integers(0, 1 << 40))
def test_any_text_is_read_or_refused(text: str, position: int) -> None:
    try:
        decode_metadata(position, text, TOPIC_ID)
    except MetadataRefused:
        return
    assert not text, "text that nobody wrote was believed"


@given(st.integers(0, 5), st.binary(max_size=200))
def test_any_bytes_of_a_map_are_read_or_refused(form: int, data: bytes) -> None:
    try:
        runs = decode_runs(0, form, data)
    except MetadataRefused:
        return
    assert (np.diff(runs.ravel()) > 0).all()


@given(
    slots=st.integers(2, 400),
    gap=st.sampled_from([0, 1, 3, 200, 1 << 20]),
    odd=st.booleans(),
    units_max=st.sampled_from([1_024, UNITS_MAX]),
)
@settings(deadline=None, max_examples=examples(60))
def test_admitted_offsets_fit_in_any_order_of_completion(slots: int, gap: int, odd: bool, units_max: int) -> None:
    """The worst order: every second record ends, so that no two runs join."""
    tracker, offset = OffsetTracker(0), 0
    added: list[int] = []
    for _ in range(slots * 40):
        if not tracker.admits(offset, map_bytes_max(units_max)):
            break
        slot = tracker.add(offset)
        assert slot is not None
        added.append(slot)
        offset += 1 + gap
    for slot in added[1 + odd :: 2]:
        tracker.finish(slot)
    text = encode_metadata(tracker.position, CommitMetadata(tracker.finished_runs()), TOPIC_ID, units_max=units_max)
    assert len(text.encode("utf-16-le")) // 2 <= units_max
