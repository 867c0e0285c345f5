"""Lists the running queries of a querier, and ends one early."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.client.arguments import arguments_of
from tsdb.client.call import ClientCall, Method, Single
from tsdb.v1 import reader_pb2


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A running query.

    number: counts the queries of this server from 1. kind: `grpc_query`, or the endpoint of the HTTP API. text: cut at
    2,000 characters. started_ms: when its request arrived, in ms since epoch UTC; age_s: seconds since then. peer: its
    caller's address.
    """

    number: int
    kind: str
    text: str
    started_ms: int
    age_s: float
    peer: str


def queries() -> ClientCall[list[QueryInfo]]:
    """The running queries, the oldest first."""
    return ClientCall(Method.QUERIES, reader_pb2.QueriesRequest(), lambda: Single(_infos))


@arguments_of("cancel_query")
def cancel_query(number: int) -> ClientCall[bool]:
    """End a running query. False when it does not run."""
    request = reader_pb2.CancelQueryRequest(number=number)
    return ClientCall(Method.CANCEL_QUERY, request, lambda: Single(lambda answer: bool(answer.found)))


def _infos(answer: reader_pb2.QueriesResponse) -> list[QueryInfo]:
    return [QueryInfo(one.number, one.kind, one.text, one.started_ms, one.age_s, one.peer) for one in answer.queries]
