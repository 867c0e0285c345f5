"""Prometheus remote write: `POST /api/v1/write`, versions 1.0 and 2.0, as a protocol of the HTTP receiver.

The parameter `proto` of the content type chooses the version, as the specifications say; without it the version is 1.0.
Answers to 2.0 state what was written, answers to 1.0 do not. Created timestamps are not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.bucket_memory import BucketMemory
from ingest.http.protocol import VERSION, Decoded, Outcome, WriteCall, WriteProtocol, shown, text_answer
from ingest.limits import IngestLimits
from ingest.native import NativeHistogramRule, received_histograms
from ingest.remote_write.classic_rows import with_bucket_exemplars, with_histograms
from ingest.remote_write.detailed_rows import with_details
from ingest.remote_write.exemplars import exemplars_of
from ingest.remote_write.wire import VERSION_1, VERSION_2, Wire, decode_wire
from ingest.remote_write.wire_kernels import (
    HELP_START,
    HELP_STOP,
    KIND,
    NAME_START,
    NAME_STOP,
    UNIT_START,
    UNIT_STOP,
)
from tsdb.model.errors import InvalidRequest
from tsdb.model.family import Family
from tsdb.ops.http.bodies import HttpAnswer

PATH = "/api/v1/write"
MEDIA_TYPE = "application/x-protobuf"
MESSAGES = {"": VERSION_1, "prometheus.WriteRequest": VERSION_1, "io.prometheus.write.v2.Request": VERSION_2}
VERSION_HEADER = "x-prometheus-remote-write-version"
KINDS = ("", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
SUFFIXES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "summary": ("_sum", "_count"),
}


@dataclass(frozen=True, slots=True)
class Received:
    """Contents of a request: float samples, and native histograms with the first of their rows."""

    samples: int
    histograms: int
    first_histogram_row: int
    histogram_samples: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Contents of a request whose histograms stay: int64 (rows,), float samples and histograms of each row."""

    floats: NDArray[np.int64]
    histograms: NDArray[np.int64]


def remote_write(
    limits: IngestLimits, *, native_histograms: NativeHistogramRule = "classic", buckets: BucketMemory | None = None
) -> WriteProtocol:
    """The protocol. buckets: None for a memory that knows only the requests of this process."""
    memory = buckets or BucketMemory()

    def decode(call: WriteCall) -> Decoded:
        version = version_of(call)
        if version is None:
            raise InvalidRequest(_unsupported(call), reason=VERSION)
        wire = decode_wire(call.body, version, limits, call.reserve)
        received_histograms.inc(len(wire.histograms))
        keeps = native_histograms == "keep"
        if keeps:
            rows = with_details(wire, call.body, call.reserve)
        else:
            if len(wire.histograms):
                memory.check_wait(may_wait=call.may_wait)
            accept = native_histograms == "classic"
            rows = with_histograms(wire, call.body, memory, accept=accept, reserve=call.reserve)
        if len(wire.exemplars) or wire.exemplars_left_out:
            rows = replace(rows, exemplars=exemplars_of(wire, call.body, version))
            if rows.exemplars is not None and not keeps:
                rows = with_bucket_exemplars(rows, memory)
        received: Received | Kept
        if keeps:
            floats = np.diff(wire.rows.starts)
            received = Kept(floats, np.diff(rows.starts) - floats)
        else:
            added = rows.samples - wire.rows.samples
            received = Received(wire.rows.samples, len(wire.histograms), len(wire.rows), added)
        return Decoded(rows, _families(wire, call.body, version) if len(wire.metadata) else (), received)

    return WriteProtocol(
        name="remote_write",
        paths=(PATH,),
        # Like Prometheus's receiver: a request without a type has version 1.0.
        content_types=frozenset({"", MEDIA_TYPE}),
        encodings=frozenset({"snappy", "zstd"}),
        default_encoding="snappy",
        decode=decode,
        answer=answer,
    )


def version_of(call: WriteCall) -> int | None:
    """The version that the content type names. None for another version, or when the version header names an unknown
    one."""
    header = call.head.headers.get(VERSION_HEADER, "")
    if header and header.split(".")[0] not in ("0", "1", "2"):
        return None
    return MESSAGES.get(call.media_type.parameters.get("proto", ""))


def answer(call: WriteCall, outcome: Outcome) -> HttpAnswer:
    """Answer with 204, or with the error as text. An answer to version 2.0 has the numbers of written samples."""
    found = HttpAnswer(204, content_type="") if outcome.error is None else text_answer(outcome.error)
    if MESSAGES.get(call.media_type.parameters.get("proto", "")) != VERSION_2:
        return found
    samples, histograms = _written(outcome)
    exemplars = 0 if outcome.result is None else outcome.result.exemplars
    written = (("Samples", samples), ("Histograms", histograms), ("Exemplars", exemplars))
    headers = tuple((f"x-prometheus-remote-write-{what.lower()}-written", str(count)) for what, count in written)
    return HttpAnswer(found.status, found.body, found.content_type, (*found.headers, *headers))


def _written(outcome: Outcome) -> tuple[int, int]:
    """Float samples and histograms that are on the log. A histogram counts when none of its rows is refused.

    Of more refused series than the result lists, those of histograms are not known: none of them counts then.

    """
    result, decoded = outcome.result, outcome.decoded
    if result is None or decoded is None:
        return 0, 0
    received = decoded.detail
    if isinstance(received, Kept):
        written = np.ones(len(received.floats), np.bool_)
        written[list(result.refused_rows)] = False
        return int(received.floats[written].sum()), int(received.histograms[written].sum())
    if not isinstance(received, Received):
        return 0, 0
    if not result.refused_series:
        return received.samples, received.histograms
    if not received.histograms:
        return result.samples, 0
    refused = [offender.series_index for offender in result.offenders]
    if len(refused) == result.refused_series and max(refused) < received.first_histogram_row:
        return received.samples - result.refused_samples, received.histograms
    return max(0, received.samples - result.refused_samples), 0


def _families(wire: Wire, body: bytes | bytearray, version: int) -> Sequence[Family]:
    return [_family(entry, body, version) for entry in wire.metadata.tolist()]


def _family(entry: Sequence[int], body: bytes | bytearray, version: int) -> Family:
    def text(start: int, stop: int) -> str:
        return bytes(body[entry[start] : entry[stop]]).decode(errors="replace")

    kind = KINDS[entry[KIND]] if 0 <= entry[KIND] < len(KINDS) else ""
    name = text(NAME_START, NAME_STOP)
    if version == VERSION_2:  # Metadata of version 2.0 belongs to series, that of version 1.0 to families.
        suffix = next((end for end in SUFFIXES.get(kind, ()) if name.endswith(end)), "")
        name = name.removesuffix(suffix)
    return Family(name, kind, text(HELP_START, HELP_STOP), text(UNIT_START, UNIT_STOP))


def _unsupported(call: WriteCall) -> str:
    proto, version = call.media_type.parameters.get("proto", ""), call.head.headers.get(VERSION_HEADER, "")
    accepted = ", ".join(filter(None, MESSAGES))
    return f"proto {shown(proto)} with version {shown(version)} is not accepted here; proto is one of {accepted}"
