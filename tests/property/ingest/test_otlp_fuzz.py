"""Damaged OTLP requests: refused, or decoded as protobuf's parser and the twin read them. Nothing else happens."""

from __future__ import annotations

import contextlib
import random

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ingest.otlp.decode import OtlpDecoder
from support.data.otlp_requests import REQUESTS, refused_points, samples_of
from support.examples import examples
from support.oracles.otlp_twin import TwinRules, translate
from tsdb.model.errors import InvalidRequest

DAMAGED = 12  # Copies of each request.


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut short, with a flipped bit, or with three other bytes."""
    copy = bytearray(data)
    match rng.randrange(3):
        case 0:
            del copy[rng.randrange(len(copy)) :]
        case 1:
            copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
        case _:
            for _ in range(3):
                copy[rng.randrange(len(copy))] = rng.randrange(256)
    return bytes(copy)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(REQUESTS.filter(lambda request: request.ByteSize() > 0), st.randoms(use_true_random=False))
def test_a_damaged_request_is_refused_or_decodes_as_protobuf_reads_it(
    request: ExportMetricsServiceRequest, rng: random.Random
) -> None:
    whole = request.SerializeToString()
    for _ in range(DAMAGED):
        data = damaged(whole, rng)
        with contextlib.suppress(InvalidRequest):
            export = OtlpDecoder().decode(data)  # One that remembers no boundaries of other requests.
            # protobuf refuses text that is not UTF-8, which the write pipeline does here. The twin knows few units.
            with contextlib.suppress(DecodeError, KeyError):
                expected = translate(ExportMetricsServiceRequest.FromString(data), TwinRules())
                expected.assert_equal(samples_of(export))
                assert refused_points(export) == expected.refused
