"""Exemplars from the heads of stores to a querier: in this process, and as messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from support.data.exemplars import One, plain, records_of
from support.data.heads import canonical_of, id_of, new_head
from support.fakes.fake_stores import FakeStore, FakeStores, state
from support.servers.queriers import Context, ServedHeads, context, one_store, querier_over, sources_over
from tsdb.answer.answer import ExemplarsAnswer
from tsdb.client.options import wire_matchers
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.model.errors import CorruptData, InvalidRequest, Unavailable
from tsdb.query.promql.storage import QuerierStorage
from tsdb.reader.read_call import ReadCalls, SelectLimits
from tsdb.selector.selectors import parse_selector
from tsdb.v1 import reader_pb2
from tsdb.wire.exemplars import decode_exemplars_answer, decode_exemplars_spec, encode_exemplars_answer

ALWAYS_MS = 1 << 60
LONG = {"trace_id": "x" * 100}


def head_with(partition: int, ones: Sequence[One]) -> Head:
    head = new_head(partition, series=6, limits=HeadLimits(exemplars_series_max=100_000))
    groups = [ones[start : start + 2000] for start in range(0, len(ones), 2000)]
    offsets = np.arange(len(groups), dtype=np.int64)
    head.apply(records_of(groups), offsets, offsets)
    return head


def one(number: int, ts_ms: int, labels: dict[str, str] | None = None) -> One:
    return id_of(number), ts_ms, float(ts_ms), labels or {"t": str(ts_ms)}


@pytest.fixture
def served() -> ServedHeads:
    served = ServedHeads({0: head_with(0, [one(0, 1), one(3, 2), one(0, 3)]), 1: head_with(1, [one(1, 5), one(0, 9)])})
    served.catch_up()
    return served


def asked(selector: str, start_ms: int = -ALWAYS_MS, end_ms: int = ALWAYS_MS) -> reader_pb2.ExemplarsRequest:
    return reader_pb2.ExemplarsRequest(matchers=wire_matchers(selector), start_ms=start_ms, end_ms=end_ms)


def found(answers: Sequence[ExemplarsAnswer]) -> list[tuple[int, bytes, list[One]]]:
    """Partition, labels and exemplars of each series."""
    rows = []
    for answer in answers:
        if answer.series is None or answer.exemplars is None:
            continue
        ones = plain(answer.exemplars)
        for series_id, labels in zip(answer.series.series_ids.tolist(), answer.series.canonical(), strict=True):
            rows.append((answer.series.partition, labels, [one for one in ones if one[0] == series_id]))
    return rows


def test_a_store_and_a_querier_answer_the_same_messages(served: ServedHeads) -> None:
    querier = querier_over(one_store(served), None, window_ms=1000, partitions=2)
    for service in (served.service, querier):
        messages = list(service.Exemplars(asked('m_0{job="test"}'), context()))
        sent = [message.SerializeToString() for message in messages]
        answers = [decode_exemplars_answer(reader_pb2.ExemplarsResponse.FromString(data)) for data in sent]
        assert answers[0].states is not None
        assert [of.partition for of in answers[0].states] == [0, 1]
        assert sorted(found(answers)) == sorted(
            [
                (0, canonical_of(0), [one(0, 1), one(0, 3)]),
                (0, canonical_of(3), [one(3, 2)]),
                (1, canonical_of(0), [one(0, 9)]),
            ]
        )


def test_the_storage_of_a_query_includes_both_ends(served: ServedHeads) -> None:
    sources = sources_over(one_store(served), None, window_ms=1000, partitions=2)
    with ReadCalls().of(Context()) as call:
        storage = QuerierStorage(sources, SelectLimits(), call)
        rows = storage.exemplars(parse_selector("m_0"), 3, 9)
        assert [(labels, plain(exemplars)) for labels, exemplars in rows] == [
            (canonical_of(0), [one(0, 3)]),
            (canonical_of(0), [one(0, 9)]),
        ]
        assert [labels for labels, _ in storage.exemplars(parse_selector("m_1"))] == [canonical_of(1)]
        assert storage.exemplars(parse_selector("m_0"), 4, 3) == []


def test_many_exemplars_come_in_parts_with_whole_series() -> None:
    ones = [one(number, ts_ms, LONG) for ts_ms in range(4000) for number in range(6)]
    served = ServedHeads({0: head_with(0, ones)})
    served.catch_up()
    messages = list(served.service.Exemplars(asked('{job="test"}'), context()))
    assert len(messages) > 3
    rows = found([decode_exemplars_answer(message) for message in messages])
    assert sorted(labels for _, labels, _ in rows) == sorted(map(canonical_of, range(6)))
    assert all(len(of_series) == 4000 for *_, of_series in rows)


def test_a_partition_without_a_store_is_an_error(served: ServedHeads) -> None:
    querier = querier_over(one_store(served), None, window_ms=1000, partitions=3)
    with pytest.raises(Unavailable):
        list(querier.Exemplars(asked("m_0"), context()))


def test_the_next_store_answers_in_place_of_one_that_refuses() -> None:
    first, second = FakeStore("a", [state(0)]), FakeStore("b", [state(0)])
    first.fail = [Unavailable("away", reason="x")]
    second.fail = [Unavailable("away", reason="x")]
    querier = querier_over(FakeStores(first, second), None, window_ms=1000)
    with pytest.raises(Unavailable):
        list(querier.Exemplars(asked("m_0"), context()))
    assert len(first.asked) == len(second.asked) == 1
    assert len(list(querier.Exemplars(asked("m_0"), context()))) == 1


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (reader_pb2.ExemplarsRequest(start_ms=1, end_ms=2), "bad_matcher"),
        (asked("m_0", 2, 2), "bad_range"),
        (asked("m_0", 2, 1 << 62), "bad_range"),
    ],
)
def test_bad_requests_are_refused(request_: reader_pb2.ExemplarsRequest, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_exemplars_spec(request_)
    assert refused.value.reason == reason


@pytest.mark.parametrize("field", ["counts", "ts_ms", "values", "label_lengths", "labels"])
def test_an_answer_that_contradicts_itself_is_corrupt(served: ServedHeads, field: str) -> None:
    _, message, *_ = served.service.Exemplars(asked("m_0"), context())
    setattr(message, field, getattr(message, field)[:-1])
    with pytest.raises(CorruptData):
        decode_exemplars_answer(message)


def test_an_answer_of_states_alone_survives_the_wire() -> None:
    answer = ExemplarsAnswer([state(0)], ("a warning",))
    again = decode_exemplars_answer(encode_exemplars_answer(answer))
    assert again.states is not None
    assert (len(again.states), again.warnings, again.series) == (1, ("a warning",), None)
