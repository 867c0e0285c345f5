"""Write: the calls of a batch, and the total of their results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tsdb.client.batch import RequestLimits, RequestPart, WriteBatch
from tsdb.client.call import ClientCall, Method, Single
from tsdb.model.errors import Overloaded
from tsdb.v1 import common_pb2, ingest_pb2

OFFENDERS_MAX = 64  # Most offenders of all requests of a batch together. The counts are always complete.


@dataclass(slots=True)
class WriteResult:
    """Result of a write. Pass `tokens` to ReadOptions.after for a read that includes this write.

    samples: accepted samples, all on the log; exemplars likewise. refused_samples, refused_series: only with partial;
    `offenders` lists some of them, with series_index into the batch. requests: number of requests sent.
    """

    tokens: list[common_pb2.Token] = field(default_factory=list)
    samples: int = 0
    exemplars: int = 0
    refused_samples: int = 0
    refused_series: int = 0
    offenders: list[ingest_pb2.Offender] = field(default_factory=list)
    requests: int = 0


def calls(batch: WriteBatch, limits: RequestLimits, *, partial: bool) -> Iterator[ClientCall[WriteResult]]:
    """One call for each request of the batch. Execute them one after another, because order decides between equal
    timestamps."""
    for part in batch.parts(limits, partial=partial):
        yield _call(part)


def add(total: WriteResult, one: WriteResult) -> None:
    """Add the result of one request."""
    total.tokens.extend(one.tokens)
    total.samples += one.samples
    total.exemplars += one.exemplars
    total.refused_samples += one.refused_samples
    total.refused_series += one.refused_series
    total.offenders.extend(one.offenders[: OFFENDERS_MAX - len(total.offenders)])
    total.requests += one.requests


def _call(part: RequestPart) -> ClientCall[WriteResult]:
    return ClientCall(Method.WRITE, part.request, lambda: Single(lambda answer: _result(part, answer)))


def _result(part: RequestPart, answer: ingest_pb2.WriteResponse) -> WriteResult:
    if answer.retry_after_ms:
        raise _over_rate(answer)
    for offender in answer.offenders:
        if offender.series_index < len(part.series_indexes):
            offender.series_index = int(part.series_indexes[offender.series_index])
    return WriteResult(
        tokens=list(answer.tokens),
        samples=answer.samples,
        exemplars=answer.exemplars,
        refused_samples=answer.refused_samples,
        refused_series=answer.refused_series,
        offenders=list(answer.offenders),
        requests=1,
    )


def _over_rate(answer: ingest_pb2.WriteResponse) -> Overloaded:
    """Rows over the rate of their source are sent again with the whole request, which is safe; they are never given up
    as bad rows are."""
    limited = next((offender for offender in answer.offenders if offender.reason.endswith("s_limit")), None)
    return Overloaded(
        limited.message if limited else "rows were refused for the rate of their source",
        reason=limited.reason if limited else "source_samples_limit",
        retry_after_s=answer.retry_after_ms / 1000,
    )
