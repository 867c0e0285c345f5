"""Sources: all that a querier reads from, and how a request is cut for the stores that share it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from tsdb.ops.grpc_slots import waiting
from tsdb.query.downsampled import Resolutions
from tsdb.query.history_reads import HistoryReads
from tsdb.query.past_index import PastIndex
from tsdb.query.routing import Share
from tsdb.query.stores import Stores
from tsdb.v1 import common_pb2, reader_pb2

Request = TypeVar(
    "Request",
    reader_pb2.SelectRequest,
    reader_pb2.SeriesRequest,
    reader_pb2.LabelNamesRequest,
    reader_pb2.LabelValuesRequest,
)


@dataclass(frozen=True, slots=True)
class Past:
    """History as a querier reads it. window_ms: of the time set that all share. resolutions: None: nothing is ever made
    of derived series."""

    store: HistoryReads
    index: PastIndex
    window_ms: int
    resolutions: Resolutions | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """topic_id, partitions (ascending): of the log, so that a missing store is missed. past: None without a history."""

    stores: Stores
    topic_id: str
    partitions: Sequence[int]
    past: Past | None


def request_for(request: Request, share: Share) -> Request:
    """A copy for one share: its partitions, and of the tokens to wait for those that are of them."""
    part = type(request)()
    part.CopyFrom(request)
    del part.options.partitions[:]
    part.options.partitions.extend(share.partitions)
    kept = _tokens_of(request.options.after, share.partitions)
    del part.options.after[:]
    part.options.after.extend(kept)
    return part


def stores_answering(request: Request) -> AbstractContextManager[None]:
    """The block in which the first messages of stores are waited for: they may have to wait for records themselves."""
    return waiting() if request.options.after else nullcontext()


def _tokens_of(tokens: Iterable[common_pb2.Token], partitions: Iterable[int]) -> list[common_pb2.Token]:
    mine = set(partitions)
    return [token for token in tokens if token.partition in mine]
