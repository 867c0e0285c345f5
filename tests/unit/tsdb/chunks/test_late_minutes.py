"""Late minutes show the number of waiting samples to any thread at any time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from support.data.chunk_cases import WINDOW_MS, assert_same
from support.data.detail_cases import detailed_fragments
from support.data.log_records import decode_list
from tsdb.chunks.batches import part, with_samples
from tsdb.chunks.late_minute import SAMPLE_BYTES, LateMinute, LateSamples
from tsdb.chunks.late_minutes import LateMinutes
from tsdb.codec.records.log_record import encode_record
from tsdb.model.details import same_details

MINUTE_MS = 60_000
ROUNDS = 3_000


@pytest.fixture
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def take(late: LateMinutes, minute: int, samples: int) -> None:
    """One record of the minute with `samples` late samples."""
    ids, numbers = np.zeros(samples, np.uint64), np.zeros(samples, np.int64)
    late.take(
        np.array([minute]),
        np.array([minute * MINUTE_MS]),
        numbers,
        LateSamples(ids, ids, numbers, np.zeros(samples), numbers),
    )


def test_samples_wait_from_when_they_came_until_their_minute_is_taken_out() -> None:
    late = LateMinutes(0, MINUTE_MS, 0)
    for minute, samples in enumerate([2, 3, 0, 4]):
        take(late, minute, samples)
    assert late.samples == 9
    assert [late.take_ended().minute.samples for _ in range(len(late.ended))] == [2, 3]
    assert late.samples == 4


def test_details_go_with_the_late_samples_that_win() -> None:
    given = detailed_fragments()["native_and_starts"]
    ids = np.repeat(given.series_id, np.diff(given.sample_start))
    places = np.random.Generator(np.random.PCG64(1)).permutation(given.samples)
    minute = LateMinute(7)
    packs = np.full(given.samples, given.pack_id, np.uint64)
    older = LateSamples(packs, ids, given.ts_ms, np.ones(given.samples), np.full(given.samples, 8))
    assert given.details is not None
    order = np.full(given.samples, 9)
    columns = packs, ids[places], given.ts_ms[places], given.value[places], order
    minute.add(older)
    minute.add(LateSamples(*columns, given.details.take(places)))
    (got,) = minute.fragments(WINDOW_MS)
    assert_same(got, replace(given, order=order))
    assert same_details(got.details, given.details)
    assert minute.bytes > 2 * given.samples * SAMPLE_BYTES, "details count"


def test_parts_and_choices_of_a_batch_have_the_details_of_their_samples() -> None:
    given = detailed_fragments()["native_and_starts"]
    ids = np.repeat(given.series_id, np.diff(given.sample_start))
    one, length = np.array([7], np.uint64), np.array([given.samples], np.uint32)
    record = encode_record(one, length, ids, given.ts_ms, given.value, given.details)
    records = decode_list([encode_record(one, length, ids, given.ts_ms, given.value), record, record])
    assert given.details is not None
    assert part(records, 0, 1).details is None
    assert same_details(part(records, 1, 2).details, given.details)
    keep = np.random.Generator(np.random.PCG64(1)).random(len(records.ts_ms)) < 0.5
    chosen = with_samples(records, keep)
    assert records.details is not None
    assert same_details(chosen.details, records.details.take(np.flatnonzero(keep)))
    assert with_samples(records, np.arange(len(keep)) < given.samples).details is None


@pytest.mark.usefixtures("switching")
def test_another_thread_may_read_the_count_while_minutes_come_and_go() -> None:
    late, done = LateMinutes(0, MINUTE_MS, 0), threading.Event()
    found: list[BaseException] = []

    def ask() -> None:
        try:
            while not done.is_set():
                assert 0 <= late.samples <= 60
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for minute in range(ROUNDS):
        take(late, minute, 1)
        if len(late.ended) > 50:
            late.take_ended()
    done.set()
    thread.join()
    assert found == []
