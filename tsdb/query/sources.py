"""Sources: stores and history of a querier, and the part of a request for each store that shares it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from tsdb.ops.grpc.slots import waiting
from tsdb.query.history.downsampled import Resolutions
from tsdb.query.history.index import HistoryIndex
from tsdb.query.history.reads import HistoryReads
from tsdb.query.stores.interface import Stores
from tsdb.query.stores.routing import Share
from tsdb.reader.read_call import ReadCall
from tsdb.reader.request import partitions_of, tokens_of
from tsdb.v1 import common_pb2, reader_pb2

Request = TypeVar(
    "Request",
    reader_pb2.SelectRequest,
    reader_pb2.SeriesRequest,
    reader_pb2.LabelNamesRequest,
    reader_pb2.LabelValuesRequest,
    reader_pb2.CardinalityRequest,
)


@dataclass(frozen=True, slots=True)
class HistorySource:
    """History for a querier. window_ms: window of the common time set. resolutions: None: there are no derived
    series."""

    store: HistoryReads
    index: HistoryIndex
    window_ms: int
    resolutions: Resolutions | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of a querier. topic_id, partitions (ascending): those of the log, so that a missing store is noticed.
    history: None without a configured history.

    chunk_stage: the last known state of the chunk stage; None: not known. experiment: its name; empty: production.
    log_address, history_address: as configured, for messages.


    """

    stores: Stores
    topic_id: str
    partitions: Sequence[int]
    history: HistorySource | None
    chunk_stage: Callable[[], reader_pb2.ChunkStageState | None] = lambda: None
    experiment: str = ""
    log_address: str = ""
    history_address: str = ""


def partitions_for(sources: Sources, options: reader_pb2.ReadOptions) -> list[int]:
    """The partitions to answer for, ascending. Checks the tokens of `after`; the stores wait for them.

    Raises InvalidRequest (bad_partition, bad_token), WrongTopic.
    """
    partitions = partitions_of(options.partitions, sources.partitions)
    tokens_of(options.after, sources.topic_id, sources.partitions)
    return partitions


def request_for(request: Request, share: Share) -> Request:
    """A copy of the request for one share, with the share's partitions and only their tokens."""
    part = type(request)()
    part.CopyFrom(request)
    del part.options.partitions[:]
    part.options.partitions.extend(share.partitions)
    kept = _tokens_of(request.options.after, share.partitions)
    del part.options.after[:]
    part.options.after.extend(kept)
    return part


def joined_warnings(headers: Iterable[reader_pb2.SelectHeader]) -> list[str]:
    """The warnings of several stores' answers. A partition that was read twice warns once."""
    return list(dict.fromkeys(text for header in headers for text in header.warnings))


@contextmanager
def stores_answering(request: Request, call: ReadCall) -> Iterator[None]:
    """Context for waiting for the stores' first messages. A store may itself wait for the records of `after`, so then
    the call counts as waiting. Raises Unavailable (draining)."""
    if request.options.after:
        with waiting(), call.waiting():
            yield
    else:
        yield


def _tokens_of(tokens: Iterable[common_pb2.Token], partitions: Iterable[int]) -> list[common_pb2.Token]:
    mine = set(partitions)
    return [token for token in tokens if token.partition in mine]
