"""Deltas through gateways that restart: the stored samples are the sent intervals, each once.

Requests come in any order and any number of times, as from senders that got no answer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.mapping.names import OtlpRules
from support.data.otlp_requests import attributes, export_request
from support.examples import examples
from support.senders.write_receiver import WriteServer
from support.servers.gateways import NOW_MS, Bench
from tsdb.ops.lifecycle import Deadline

NS_PER_MS = 1_000_000
SERIES = ("a", "b", "c")
KEEP = OtlpRules(native_histograms="keep")

# Ends of intervals behind now, ms, and how far each starts before its end: gaps, overlaps, starts after their end.
intervals = st.dictionaries(
    st.tuples(st.sampled_from(SERIES), st.integers(0, 100_000)),
    st.tuples(st.integers(-50, 100_000), st.sampled_from([0.0, 1.0, -2.5, 1e17, 1.0, 3.0])),
    min_size=1,
    max_size=12,
)


def request_of(points: list[tuple[tuple[str, int], tuple[int, float]]]) -> bytes:
    """A request with these intervals of a sum."""
    metric = pb.Metric(
        name="m",
        sum=pb.Sum(
            aggregation_temporality=pb.AGGREGATION_TEMPORALITY_DELTA,
            data_points=[
                pb.NumberDataPoint(
                    as_double=value,
                    time_unix_nano=(NOW_MS - behind_ms) * NS_PER_MS,
                    start_time_unix_nano=(NOW_MS - behind_ms - length_ms) * NS_PER_MS,
                    attributes=attributes({"n": series}),
                )
                for (series, behind_ms), (length_ms, value) in points
            ],
        ),
    )
    return export_request(metric).SerializeToString()


@settings(max_examples=examples(60), deadline=None)
@given(intervals, st.data())
def test_each_interval_is_stored_once_whatever_is_repeated(sent: dict[Any, Any], data: st.DataObject) -> None:
    points = list(sent.items())
    cuts = sorted({0, len(points), *data.draw(st.lists(st.integers(0, len(points)), max_size=3))})
    requests = [request_of(points[first:last]) for first, last in pairwise(cuts)]
    again = data.draw(st.lists(st.sampled_from(requests), max_size=4))
    bench, decoder = Bench(), OtlpDecoder(KEEP)
    for body in data.draw(st.permutations([*requests, *again])):
        if data.draw(st.booleans()):
            bench.restart()
        result = bench.pipeline.write(decoder.decode(body).rows, True, Deadline.after(10.0))
        assert not result.refused_rows
    expected: dict[str, dict[int, int]] = {}
    for (series, behind_ms), (_, value) in points:
        bits = int(np.float64(value).view(np.int64))
        expected.setdefault(f'm{{n="{series}"}}', {})[NOW_MS - behind_ms] = bits
    assert WriteServer(bench).stored() == expected
