"""Cardinality: reads requests and writes answers of Reader.Cardinality, and merges the groups of several indexes.

Groups merge as arrays, by hash. A group that is shown has an exact count: where a store left small groups out, the
merge says which groups to count again, and fails when that is not enough.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.spec import check_matchers
from tsdb.answer.state import MemoryState
from tsdb.index.cardinality import By, Groups, IndexCardinality
from tsdb.index.index import SeriesIndex
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.model.selector import Matcher
from tsdb.reader.read_call import ReadWork
from tsdb.v1 import reader_pb2
from tsdb.wire.fields import I64, U64, unpack
from tsdb.wire.state import decode_matchers, encode_header

TOP, TOP_MAX = 20, 10_000
HASHES_MAX = 2 * TOP_MAX
PARTS_MAX = 1 << 21  # Groups in the answer of one store: 48 MiB by label.
GROUP_BYTES = 64  # Memory of a group while the groups of one index are hashed, sorted and merged.
_KINDS = {
    reader_pb2.BY_METRIC: By.METRIC,
    reader_pb2.BY_LABEL: By.LABEL,
    reader_pb2.BY_PAIR: By.PAIR,
    reader_pb2.BY_SOURCE: By.SOURCE,
}


@dataclass(frozen=True, slots=True)
class CardinalitySpec:
    """A valid Cardinality request. seed: 0 for a caller that wants names. hashes: uint64, the groups to name."""

    matchers: tuple[Matcher, ...]
    by: By
    top: int
    seed: int
    hashes: NDArray[np.uint64] | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """n groups with their numbers of series. hashes: uint64; by label the hashes of the names. series: int64 (n,).
    values: int64 (n,), 0 unless by label.

    slack: a group may have this number of series more than `series`, and a missing group at most this number.

    """

    hashes: NDArray[np.uint64]
    series: NDArray[np.int64]
    values: NDArray[np.int64]
    by_label: bool
    slack: int = 0

    def candidates(self, count: int) -> NDArray[np.int64]:
        """Indexes of the `count` largest groups, and of all others that may be among them.

        Raises Overloaded (groups_limit) when too many may be.
        """
        sizes = self.values if self.by_label else self.series
        if not self.slack:
            return np.argsort(-sizes, kind="stable")[:count].astype(np.int64)
        least = int(np.sort(sizes)[-count]) if count <= len(sizes) else 0
        found = np.flatnonzero(sizes + self.slack >= least)
        if least <= self.slack or len(found) > HASHES_MAX:
            raise Overloaded(
                f"a store has more than {PARTS_MAX} groups, and the largest {count} are too small to tell from the"
                " rest: add matchers, or show fewer",
                reason="groups_limit",
                limit=PARTS_MAX,
            )
        return found

    def places_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Indexes of the groups among `hashes` that are here."""
        return np.flatnonzero(np.isin(self.hashes, hashes))


def cardinality_spec(request: reader_pb2.CardinalityRequest) -> CardinalitySpec:
    """Check a request. Raises InvalidRequest (bad_cardinality)."""
    by = _KINDS.get(request.by)
    if by is None:
        raise InvalidRequest(f"cardinality by {request.by} is unknown", reason="bad_cardinality")
    if request.top > TOP_MAX:
        raise InvalidRequest(f"top is {request.top}; limit is {TOP_MAX}", reason="bad_cardinality")
    if request.hashes and not request.hash_seed:
        raise InvalidRequest("hashes go with hash_seed", reason="bad_cardinality")
    if len(request.hashes) % 8 or len(request.hashes) > 8 * HASHES_MAX:
        raise InvalidRequest(
            f"hashes has {len(request.hashes)} bytes; it must be a multiple of 8 up to {8 * HASHES_MAX}",
            reason="bad_cardinality",
        )
    hashes = np.frombuffer(request.hashes, "<u8") if request.hashes else None
    matchers = decode_matchers(request.matchers)
    check_matchers(matchers)
    return CardinalitySpec(matchers, by, request.top or TOP, request.hash_seed, hashes)


def count(
    indexes: Iterable[SeriesIndex],
    query: CardinalitySpec,
    placement_labels: Sequence[str],
    work: ReadWork,
    parts_max: int = PARTS_MAX,
) -> reader_pb2.CardinalityResponse:
    """The answer of a store, without its header. Raises as SeriesIndex.select, and Overloaded (groups_limit)."""
    seed = query.seed or new_seed()
    found: list[IndexCardinality] = []
    parts: list[Groups] = []
    for index in indexes:
        work.check_going()
        found.append(index.cardinality(query.by, query.matchers, seed, work.check_going))
        parts.append(found[-1].groups(query.by, placement_labels))
        work.hold(GROUP_BYTES * sum(len(part.hashes) for part in parts))
    groups = combined(parts)
    response = reader_pb2.CardinalityResponse(series=sum(one.series for one in found))
    if query.seed and query.hashes is None:
        response.parts.CopyFrom(parts_to_wire(groups, parts_max))
        return response
    ranked = ranking(groups)
    chosen = ranked.candidates(query.top) if query.hashes is None else ranked.places_of(query.hashes)
    answer(response, _named(found, ranked, chosen, query.by, placement_labels), query, len(ranked.hashes))
    return response


class IndexReads(Protocol):
    """The indexes of a read, and the states and warnings of the read until now."""

    @property
    def indexes(self) -> Sequence[SeriesIndex]: ...

    def header(self) -> tuple[Sequence[MemoryState], Sequence[str]]: ...


def counted(
    reads: IndexReads, query: CardinalitySpec, placement_labels: Sequence[str], work: ReadWork
) -> reader_pb2.CardinalityResponse:
    """The whole answer of a store. Raises as `count`."""
    response = count(reads.indexes, query, placement_labels, work)
    response.header.CopyFrom(encode_header(*reads.header()))
    return response


def combined(parts: Sequence[Groups]) -> Groups:
    """The groups of several indexes, each once."""
    if not parts:
        return Groups(np.empty(0, np.uint64), np.empty(0, np.int64))
    hashes, first, place = np.unique(
        np.concatenate([part.hashes for part in parts]), return_index=True, return_inverse=True
    )
    series = _sums(place, np.concatenate([part.series for part in parts]), len(hashes))
    owners = [part.owners for part in parts if part.owners is not None]
    return Groups(hashes, series, np.concatenate(owners)[first] if owners else None)


def ranking(groups: Groups, slack: int = 0) -> Ranking:
    """Rank groups, so that the largest can be chosen. By label, a group is a name with its values."""
    if groups.owners is None:
        return Ranking(
            groups.hashes, groups.series, np.zeros(len(groups.hashes), np.int64), by_label=False, slack=slack
        )
    names, place, values = np.unique(groups.owners, return_inverse=True, return_counts=True)
    series = _sums(place, groups.series, len(names))
    return Ranking(names, series, values.astype(np.int64), by_label=True, slack=slack)


def parts_to_wire(groups: Groups, parts_max: int = PARTS_MAX) -> reader_pb2.CardinalityParts:
    """The groups of one store for a querier. Raises Overloaded (groups_limit) by label when there are too many."""
    below = 0
    if len(groups.hashes) > parts_max:
        if groups.owners is not None:
            raise Overloaded(
                f"this store has {len(groups.hashes)} label values; limit is {parts_max}: add matchers, or ask each"
                " store by its own address",
                reason="groups_limit",
                limit=parts_max,
            )
        below = int(np.partition(groups.series, -parts_max)[-parts_max]) + 1
    kept = groups.series >= below
    return reader_pb2.CardinalityParts(
        hashes=groups.hashes[kept].astype("<u8").tobytes(),
        series=groups.series[kept].astype("<i8").tobytes(),
        owners=b"" if groups.owners is None else groups.owners.astype("<u8").tobytes(),
        omitted_below=below,
    )


def parts_from_wire(parts: reader_pb2.CardinalityParts, by: By) -> Groups:
    """Raises CorruptData (answer_malformed)."""
    hashes = unpack(parts.hashes, U64, "hashes")
    series = unpack(parts.series, I64, "series", len(hashes))
    return Groups(hashes, series, unpack(parts.owners, U64, "owners", len(hashes)) if by is By.LABEL else None)


def answer(
    response: reader_pb2.CardinalityResponse,
    groups: Iterable[reader_pb2.CardinalityGroup],
    query: CardinalitySpec,
    total: int | None,
) -> None:
    """Put groups into a response: the largest ones, or all of them for a querier. total: number of all groups; None:
    not known."""
    order = sorted(groups, key=lambda group: (-group.values, -group.series, group.labels))
    response.groups.extend(order if query.seed else order[: query.top])
    if total is not None:
        response.groups_total = total


def new_seed() -> int:
    """A random seed that is not 0: hashes of one read cannot be chosen by who names series."""
    return random.SystemRandom().randrange(1, 1 << 64)


def _named(
    counted: Sequence[IndexCardinality],
    ranked: Ranking,
    chosen: NDArray[np.int64],
    by: By,
    placement_labels: Sequence[str],
) -> list[reader_pb2.CardinalityGroup]:
    """The chosen groups with their labels, from the indexes that they were counted in."""
    wanted = ranked.hashes[chosen]
    labels: dict[int, bytes] = {}
    for one in counted:
        labels |= one.names(by, placement_labels, wanted)
    return [
        reader_pb2.CardinalityGroup(labels=labels[number], series=series, values=values, hash=number)
        for number, series, values in zip(
            wanted.tolist(), ranked.series[chosen].tolist(), ranked.values[chosen].tolist(), strict=True
        )
    ]


def _sums(place: NDArray[np.intp], series: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    # Sums of counts of series are whole numbers far below 2^53.
    return np.bincount(place, series, count).astype(np.int64)
