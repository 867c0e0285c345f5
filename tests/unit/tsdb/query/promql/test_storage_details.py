"""Histograms and start timestamps come from the records of heads to PromQL, whatever way an answer takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from support.data.heads import Record, apply, canonical_of, details_of, new_head, register
from support.servers.queriers import Context, ServedHeads, context, one_store, sources_over
from tsdb.answer.answer import joined_parts
from tsdb.answer.columns import joined_series
from tsdb.answer.spec import EXACT, SelectSpec
from tsdb.model.details import SampleDetails, same_details
from tsdb.promql.evaluate.query import QueryOptions, instant_query
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.query.promql.storage import QuerierStorage
from tsdb.reader.read_call import ReadCalls, SelectLimits
from tsdb.selector.selectors import parse_selector
from tsdb.v1 import reader_pb2
from tsdb.wire.select import decoded, encode_select

SERIES, STEP_MS, SAMPLES = 3, 7, 60
END_MS = 1000 + SAMPLES * STEP_MS


def number_of(series: int, at: int) -> int:
    """The number of the details of a sample: the first series of a partition has none."""
    return at * (series % SERIES) % 9


@pytest.fixture(params=[0, 1], ids=["open", "sealed"])
def served(request: Any) -> Iterator[ServedHeads]:
    heads = {}
    for partition in range(2):
        heads[partition] = head = new_head(partition, hold_ms=1 << 30)
        of_head = range(partition * SERIES, partition * SERIES + SERIES)
        register(head, of_head)
        for at in range(SAMPLES):
            ts_ms = 1000 + at * STEP_MS
            numbers = [number_of(series, at) for series in of_head]
            samples = tuple((series, ts_ms, float(at + series % SERIES)) for series in of_head)
            apply(head, [Record(at, ts_ms, samples, details=tuple(numbers))])
            if request.param:
                head.maintain()
    made = ServedHeads(heads)
    made.catch_up()
    yield made
    made.end()


def check(labels: list[bytes], starts: Any, ts_ms: Any, values: Any, details: SampleDetails | None) -> None:
    numbers = {canonical_of(series): series for series in range(2 * SERIES)}
    wanted: list[int] = []
    for canonical, start, end in zip(labels, starts[:-1], starts[1:], strict=True):
        wanted += [number_of(numbers[canonical], (int(ts) - 1000) // STEP_MS) for ts in ts_ms[start:end]]
    assert len(wanted) == len(ts_ms) > 0
    assert same_details(details, details_of(wanted, np.array(values)))


@pytest.mark.parametrize(("start_ms", "end_ms"), [(0, END_MS), (1100, 1200), (1100, 1100 + STEP_MS)])
def test_a_selection_has_the_details_of_its_samples(served: ServedHeads, start_ms: int, end_ms: int) -> None:
    sources = sources_over(one_store(served), None, window_ms=400, partitions=2)
    with ReadCalls().of(Context()) as call:
        storage = QuerierStorage(sources, SelectLimits(), call, EXACT)
        found: StoredSeries = storage.select(parse_selector('{job="test"}'), start_ms, end_ms)
        check(list(found.labels), found.starts, found.ts_ms, found.values, found.details)


@pytest.mark.parametrize("columns", [False, True])
def test_details_go_over_the_wire(served: ServedHeads, columns: bool) -> None:
    spec = SelectSpec(tuple(parse_selector('{job="test"}')), None, 1050, 1300, columns=columns)
    messages = served.service.Select(encode_select(spec), context())
    answers = list(decoded(_parsed(one) for one in messages))
    found = joined_series(joined_parts(answers), 1050, 1300)
    check(list(found.canonical), found.starts, found.ts_ms, found.values, found.details)


def _parsed(message: Any) -> reader_pb2.SelectResponse:
    return reader_pb2.SelectResponse.FromString(message if isinstance(message, bytes) else message.SerializeToString())


def test_promql_evaluates_histograms_of_memory(served: ServedHeads) -> None:
    sources = sources_over(one_store(served), None, window_ms=400, partitions=2)
    with ReadCalls().of(Context()) as call:
        storage = QuerierStorage(sources, SelectLimits(), call, EXACT)
        at_ms = 1000 + 5 * STEP_MS  # The sixth sample of the second series has the number 5.
        options = QueryOptions(features=ALL_FEATURES, lookback_ms=STEP_MS)
        for query, wanted in (
            ("histogram_sum(m_1)", 6.0),
            ("histogram_count(m_1)", 5.0 + 6.0 + 7.0),
            ("start_timestamp(m_1)", 5.0),
        ):
            value = instant_query(f"max({query})", storage, at_ms, options).value
            assert isinstance(value, Block)
            assert value.values.tolist() == [[wanted]], query
