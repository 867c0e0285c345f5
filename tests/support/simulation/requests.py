"""Requests of simulated senders: each is answered, and an OK names the records that hold its samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from ingest.pipeline import WriteResult
from support.simulation.oracle import Oracle, Violation
from tsdb.model.errors import Unavailable


@dataclass(frozen=True)
class Request:
    """samples: (partition, series id, ts_ms) of each."""

    samples: Sequence[tuple[int, int, int]]
    answer: Future[WriteResult]


def check_answers(requests: Sequence[Request], oracle: Oracle, counts: Counter[str]) -> None:
    """Raises Violation. counts: receives what the senders were answered, and the records of several requests."""
    named: Counter[tuple[int, int]] = Counter()
    for request in requests:
        if not request.answer.done():
            raise Violation(f"a request is not answered: {request.samples}")
        error = request.answer.exception()
        if error is None:
            named.update(_check_tokens(request, oracle))
            counts["accepted"] += 1
        elif isinstance(error, Unavailable):
            counts["write refused"] += 1
        else:
            raise error
    counts["joined"] += sum(count > 1 for count in named.values())


def _check_tokens(request: Request, oracle: Oracle) -> set[tuple[int, int]]:
    tokens = {(token.partition, token.record_offset) for token in request.answer.result().tokens}
    for partition, series, ts_ms in request.samples:
        # Of one record and time the oracle keeps the last sample, which may be of another request.
        orders = {(partition, entry.order) for entry in oracle.entries[partition][series][ts_ms]}
        if not orders & tokens:
            raise Violation(f"no record of {tokens} holds series {series} at {ts_ms}: partition {partition}, {orders}")
    return tokens
