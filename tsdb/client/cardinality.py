"""Cardinality: which metrics, labels, label pairs or sources have the most series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from tsdb.answer.spec import ReadOptions
from tsdb.client.arguments import arguments_of
from tsdb.client.call import ClientCall, Method, Single
from tsdb.client.options import Selector, wire_matchers, wire_options
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels
from tsdb.v1 import common_pb2, reader_pb2

By = Literal["metric", "label", "pair", "source"]
KINDS: tuple[By, ...] = get_args(By)
_WIRE = dict(
    zip(KINDS, (reader_pb2.BY_METRIC, reader_pb2.BY_LABEL, reader_pb2.BY_PAIR, reader_pb2.BY_SOURCE), strict=True)
)


class CardinalityKeywords(TypedDict, total=False):
    """Keyword arguments of `cardinality`."""

    by: By
    top: int
    options: ReadOptions | None


@dataclass(frozen=True, slots=True)
class CardinalityGroup:
    """labels: those of a metric, pair or source; for a label its name with "". values: number of different values, only
    by label."""

    labels: dict[str, str]
    series: int
    values: int | None


@dataclass(frozen=True, slots=True)
class Cardinality:
    """series: number of matching series in memory. groups: the largest groups, largest first. groups_total: number of
    all groups; None: not known. warnings: name partitions that lag, so that series may be missing."""

    series: int
    groups: Sequence[CardinalityGroup]
    groups_total: int | None
    partitions: Sequence[common_pb2.PartitionState]
    warnings: Sequence[str] = ()


@arguments_of("cardinality")
def cardinality(
    selector: Selector | None, *, by: By = "metric", top: int = 0, options: ReadOptions | None = None
) -> ClientCall[Cardinality]:
    """The largest groups of matching series; None matches all. top: number of groups; 0: the server's default of 20."""
    if by not in KINDS:
        raise InvalidRequest(f"by is {by!r}; it must be one of {', '.join(KINDS)}", reason="bad_cardinality")
    matchers = [] if selector is None else wire_matchers(selector)
    request = reader_pb2.CardinalityRequest(matchers=matchers, by=_WIRE[by], top=top, options=wire_options(options))
    return ClientCall(Method.CARDINALITY, request, lambda: Single(lambda answer: _result(answer, by)))


def _result(answer: reader_pb2.CardinalityResponse, by: By) -> Cardinality:
    groups = [
        CardinalityGroup(_labels(group.labels, by), group.series, group.values if by == "label" else None)
        for group in answer.groups
    ]
    total = answer.groups_total if answer.HasField("groups_total") else None
    return Cardinality(answer.series, groups, total, list(answer.header.partitions), tuple(answer.header.warnings))


def _labels(canonical: bytes, by: By) -> dict[str, str]:
    return {canonical.decode(errors="replace"): ""} if by == "label" else dict(parse_labels(canonical))
