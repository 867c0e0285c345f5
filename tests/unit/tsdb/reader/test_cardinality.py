"""Cardinality of several indexes: exact, however the series are spread over partitions and stores."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import cast

import grpc
import numpy as np
import pytest

from support.data.announcements import Labels, announced
from support.fakes.fake_stores import FakeStore, FakeStores, state
from support.servers.queriers import Context, querier_over
from tsdb.index.cardinality import By, Groups
from tsdb.index.index import SeriesIndex
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.model.labels import canonical_labels
from tsdb.model.placement import DEFAULT_PLACEMENT_LABELS, PlacementRule
from tsdb.reader.cardinality import HASHES_MAX, PARTS_MAX, TOP_MAX, cardinality_spec, count, parts_to_wire, ranking
from tsdb.reader.read_call import Caller, NoBounds
from tsdb.v1 import reader_pb2

WIRE = {
    By.METRIC: reader_pb2.BY_METRIC,
    By.LABEL: reader_pb2.BY_LABEL,
    By.PAIR: reader_pb2.BY_PAIR,
    By.SOURCE: reader_pb2.BY_SOURCE,
}
PARTITIONS = 3
CALLER = cast(grpc.ServicerContext, Context())


def index_of(series: Sequence[Labels]) -> SeriesIndex:
    index = SeriesIndex()
    index.register(*announced(series))
    return index


def spread(count: int, seed: int) -> list[list[Labels]]:
    """Series by partition: each source has one, metrics and other labels are in all."""
    chance = random.Random(seed)
    partitions: list[dict[bytes, Labels]] = [{} for _ in range(PARTITIONS)]
    for _ in range(count):
        host = chance.randrange(30)
        labels = {
            "__name__": f"m{min(int(chance.expovariate(0.3)), 40)}",
            "job": f"j{host % 4}",
            "instance": f"i{host}",
            "path": f"p{int(chance.paretovariate(0.6)) % 400}",
        }
        partitions[host % PARTITIONS][canonical_labels(labels)] = labels
    return [list(one.values()) for one in partitions]


def want(partitions: Sequence[Sequence[Labels]], by: By) -> list[tuple[bytes, int, int]]:
    """(labels, series, values) of all groups, largest first."""
    tally: Counter[bytes] = Counter()
    values: dict[bytes, set[str]] = defaultdict(set)
    for labels in (labels for series in partitions for labels in series):
        for name, value in labels.items():
            if by is By.LABEL:
                tally[name.encode()] += 1
                values[name.encode()].add(value)
            elif by is By.PAIR or (by is By.METRIC and name == "__name__"):
                tally[name.encode() + b"\xff" + value.encode()] += 1
        if by is By.SOURCE:
            tally[canonical_labels({name: labels[name] for name in PlacementRule().labels})] += 1
    rows = [(name, series, len(values[name])) for name, series in tally.items()]
    return sorted(rows, key=lambda row: (-row[2], -row[1], row[0]))


def rows(response: reader_pb2.CardinalityResponse) -> list[tuple[bytes, int, int]]:
    return [(group.labels, group.series, group.values) for group in response.groups]


class IndexStore(FakeStore):
    """A store that counts the series of real indexes, by partition; at most parts_max groups in a part."""

    def __init__(self, name: str, indexes: dict[int, SeriesIndex], parts_max: int) -> None:
        super().__init__(name, [state(partition) for partition in indexes])
        self._indexes = indexes
        self._parts_max = parts_max

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, caller: Caller
    ) -> Iterator[reader_pb2.CardinalityResponse]:
        self._ask(request)
        indexes = [self._indexes[partition] for partition in request.options.partitions]
        response = count(indexes, cardinality_spec(request), DEFAULT_PLACEMENT_LABELS, NoBounds(), self._parts_max)
        response.header.CopyFrom(self._header(request.options.partitions))
        yield response


def asked(by: By, top: int) -> reader_pb2.CardinalityRequest:
    return reader_pb2.CardinalityRequest(by=WIRE[by], top=top)


@pytest.mark.parametrize("by", By)
@pytest.mark.parametrize("top", [1, 7, 10_000])
def test_a_store_merges_its_partitions(by: By, top: int) -> None:
    partitions = spread(3_000, seed=1)
    found = count(map(index_of, partitions), cardinality_spec(asked(by, top)), DEFAULT_PLACEMENT_LABELS, NoBounds())
    expected = want(partitions, by)
    sizes = [row[1:] for row in rows(found)]
    assert sizes == [row[1:] for row in expected[:top]], "which of equal groups are shown is open"
    assert set(rows(found)) <= set(expected)
    assert (found.series, found.groups_total) == (sum(map(len, partitions)), len(expected))


@pytest.mark.parametrize(
    ("by", "parts_max"),
    # By label a store leaves nothing out.
    [*((by, PARTS_MAX) for by in By), *((by, 60) for by in By if by is not By.LABEL)],
)
@pytest.mark.parametrize("layout", [((0, 1, 2),), ((0,), (1, 2)), ((0, 1), (1, 2)), ((0,), (1,), (2,))])
def test_a_querier_merges_its_stores_and_counts_no_replica_twice(
    by: By, parts_max: int, layout: Sequence[Sequence[int]]
) -> None:
    partitions = spread(3_000, seed=2)
    indexes = [index_of(series) for series in partitions]
    stores = [
        IndexStore(f"s{number}", {partition: indexes[partition] for partition in held}, parts_max)
        for number, held in enumerate(layout)
    ]
    querier = querier_over(FakeStores(*stores), None, window_ms=400, partitions=PARTITIONS)
    found = querier.Cardinality(asked(by, 5), CALLER)
    expected = want(partitions, by)
    assert [row[1:] for row in rows(found)] == [row[1:] for row in expected[:5]]
    assert set(rows(found)) <= set(expected)
    assert found.series == sum(map(len, partitions))
    assert [one.partition for one in found.header.partitions] == list(range(PARTITIONS))
    if len(layout) > 1 and parts_max < PARTS_MAX and by is By.PAIR:
        assert not found.HasField("groups_total"), "what was left out is not known"
    else:
        assert found.groups_total == len(expected)


def test_groups_too_small_to_tell_apart_are_refused_and_not_guessed() -> None:
    series = [[{"__name__": "m", "job": "j", "id": f"{part}-{n}"} for n in range(100)] for part in range(2)]
    stores = [IndexStore(f"s{part}", {part: index_of(series[part])}, 10) for part in range(2)]
    querier = querier_over(FakeStores(*stores), None, window_ms=400, partitions=2)
    assert [row[1] for row in rows(querier.Cardinality(asked(By.PAIR, 2), CALLER))] == [200, 200]
    with pytest.raises(Overloaded, match="add matchers, or show fewer") as caught:
        querier.Cardinality(asked(By.PAIR, 3), CALLER)
    assert caught.value.reason == "groups_limit"
    with pytest.raises(Overloaded, match="this store has 102 label values; limit is 10"):
        querier.Cardinality(asked(By.LABEL, 3), CALLER)


def test_a_part_leaves_out_the_smallest_groups_and_says_so() -> None:
    sizes = np.array([5, 1, 9, 1, 1, 7], np.int64)
    parts = parts_to_wire(Groups(np.arange(6, dtype=np.uint64), sizes), parts_max=4)
    assert np.frombuffer(parts.series, "<i8").tolist() == [5, 9, 7]
    assert parts.omitted_below == 2


@pytest.mark.parametrize("seed", range(20))
def test_the_candidates_have_every_group_that_may_be_among_the_largest(seed: int) -> None:
    print(f"seed {seed}")
    chance = np.random.default_rng(seed)
    true = np.sort(chance.integers(1, 1000, 200))[::-1]
    slack, top = int(chance.integers(1, 30)), int(chance.integers(1, 50))
    seen = np.maximum(true - chance.integers(0, slack + 1, len(true)), 0)
    groups = Groups(np.arange(200, dtype=np.uint64), seen)
    try:
        chosen = ranking(groups, slack).candidates(top)
    except Overloaded:
        return
    assert set(range(top)) <= set(chosen.tolist()) or true[top - 1] == true[top]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (reader_pb2.CardinalityRequest(by=9), "cardinality by 9 is unknown"),  # type: ignore[arg-type]  # Bad input.
        (reader_pb2.CardinalityRequest(top=TOP_MAX + 1), "top is 10001; limit is 10000"),
        (reader_pb2.CardinalityRequest(hashes=bytes(8)), "hashes go with hash_seed"),
        (reader_pb2.CardinalityRequest(hash_seed=1, hashes=bytes(7)), "hashes has 7 bytes"),
        (reader_pb2.CardinalityRequest(hash_seed=1, hashes=bytes(8 * HASHES_MAX + 8)), "hashes has 160008 bytes"),
    ],
)
def test_a_wrong_request_is_refused_by_name(request_: reader_pb2.CardinalityRequest, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        cardinality_spec(request_)
