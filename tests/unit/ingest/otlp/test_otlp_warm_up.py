"""After the warm-up no request waits for a compiler."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from ingest.otlp.warm_up import warm_up
from ingest.otlp.wire.json_request import json_to_wire
from ingest.otlp.decode import OtlpDecoder
from tsdb.codec.jit import Compiling

warm_up()
point = {"attributes": [{"key": "a.b", "value": {"doubleValue": 1}}], "bucketCounts": [1], "explicitBounds": [1]}
metric = {"name": "h", "histogram": {"aggregationTemporality": 2, "dataPoints": [point]}}
wire = json_to_wire(str({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).replace("'", '"').encode())
compiled = []
with Compiling(compiled.append):
    for body in (wire, bytearray(wire)):
        assert len(OtlpDecoder().decode(body).rows) == 3
assert not compiled, compiled
"""


def test_a_request_compiles_nothing_after_the_warm_up() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
