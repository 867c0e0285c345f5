"""OTLP requests decode to the series of a plain Python translation of protobuf's objects, from protobuf and JSON."""

from __future__ import annotations

import json
import struct

import numpy as np
from google.protobuf import json_format
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.mapping.names import OtlpRules, TranslationStrategy
from ingest.otlp.wire.json_request import json_to_wire
from support.data.column_cases import STALE_BITS
from support.data.otlp_requests import REQUESTS, refused_points, samples_of
from support.examples import examples
from support.oracles.otlp_twin import TwinRules, translate

Sample = tuple[dict[str, str], int, int]  # Labels, ts_ms, bits of the value.

NAN_BITS = int(np.array(np.nan).view(np.int64))
STRATEGIES = {
    TranslationStrategy.UNDERSCORES_WITH_SUFFIXES: (True, True),
    TranslationStrategy.UNDERSCORES_WITHOUT_SUFFIXES: (True, False),
    TranslationStrategy.UTF8_WITH_SUFFIXES: (False, True),
    TranslationStrategy.NO_TRANSLATION: (False, False),
}


@settings(max_examples=examples(60), deadline=None)
@given(
    REQUESTS,
    st.sampled_from(list(STRATEGIES)),
    st.frozensets(st.sampled_from(["host.name", "host_name", "a.b", "le", "job", "service.name", ".."])),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_decoded_rows_are_those_of_the_twin(
    request: ExportMetricsServiceRequest,
    strategy: TranslationStrategy,
    promoted: frozenset[str],
    scope_metadata: bool,
    keep: bool,
    deltas: bool,
) -> None:
    rules = OtlpRules(
        translation_strategy=strategy,
        promote_resource_attributes=promoted,
        promote_scope_metadata=scope_metadata,
        keep_identifying_resource_attributes=keep,
        delta="native" if deltas else "refuse",
    )
    export = OtlpDecoder(rules).decode(request.SerializeToString())
    twin = TwinRules(*STRATEGIES[strategy], promoted, scope_metadata, keep, deltas=deltas)
    expected = translate(request, twin)
    expected.assert_equal(samples_of(export))
    assert refused_points(export) == expected.refused


def request_of_a_nan(bits: int) -> ExportMetricsServiceRequest:
    """A gauge whose only value is the NaN of these bits."""
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add(time_unix_nano=10**9, as_double=value)
    return request


def without_nan_bits(samples: list[Sample]) -> list[Sample]:
    """JSON has one text for all NaN. A stale marker is a flag of its point there, so its bits remain."""
    return [
        (labels, ts_ms, NAN_BITS if bits != STALE_BITS and np.isnan(np.int64(bits).view(np.float64)) else bits)
        for labels, ts_ms, bits in samples
    ]


@settings(max_examples=examples(25), deadline=None)
@given(REQUESTS)
@example(request_of_a_nan(0x7FF8000000000001))
@example(request_of_a_nan(0xFFF8000000000001))
def test_json_decodes_to_the_rows_of_protobuf(request: ExportMetricsServiceRequest) -> None:
    fields = json_format.MessageToDict(request, use_integers_for_enums=True)
    export = OtlpDecoder().decode(json_to_wire(json.dumps(fields).encode()))
    again = OtlpDecoder().decode(request.SerializeToString())
    assert without_nan_bits(samples_of(export)) == without_nan_bits(samples_of(again))
    assert refused_points(export) == refused_points(again)
