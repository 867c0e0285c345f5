"""A Prometheus server that has the samples of a dataset, received by remote write."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from stack.ports import Ports
from support.promql.differential.dataset import StoredHistograms, StoredSamples
from support.senders.go_senders import GoSender
from support.senders.remote_write import request_1, snappy
from tsdb.model.histograms import GAUGE
from tsdb.rules.unit_tests.histograms import HistogramValue

READY_WITHIN_S = 60.0
ANSWER_WITHIN_S = 30.0
# Its promql package is what this store's answers follow.
UPSTREAM = GoSender(
    "prometheus",
    "v0.315.0",
    "github.com/prometheus/prometheus/cmd/prometheus",
    "remove_all_sd",
    module="github.com/prometheus/prometheus",
)
UPSTREAM_VERSION = (3, 15)
# Version 2 only warns of features that it does not know.
FEATURES = (
    "promql-experimental-functions",
    "promql-extended-range-selectors",
    "promql-binop-fill-modifiers",
    "use-start-timestamps",
)
REMOTE_WRITE = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


@contextmanager
def prometheus(
    program: Path | str,
    folder: Path,
    series: Sequence[StoredSamples],
    features: Sequence[str] = FEATURES,
    natives: Callable[[], Sequence[StoredHistograms]] = list,
    options: Sequence[str] = (),
    config_of: Callable[[str], str] = lambda address: "{}\n",
) -> Iterator[str]:
    """The address of a server with these samples. natives: series of servers that store native histograms. options:
    further ones of the command. config_of: makes the configuration from the address."""
    config, log = folder / "prometheus.yml", folder / "prometheus.log"
    with Ports(1) as ports, log.open("wb") as output:
        address = f"127.0.0.1:{ports.numbers[0]}"
        config.write_text(config_of(address))
        command = [
            str(program),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder}/data",
            "--storage.tsdb.retention.time=100y",  # The samples are those of a day in 2023.
            f"--web.listen-address={address}",
            "--web.enable-remote-write-receiver",
            f"--enable-feature={','.join(features)}",
            *options,
        ]
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _wait_ready(process, address, log)
            write(address, series, natives() if version_of(address) >= UPSTREAM_VERSION else ())
            yield address
        finally:
            process.kill()
            process.wait()


def version_of(address: str) -> tuple[int, int]:
    """Major and minor version of a server. The build of UPSTREAM does not know its version."""
    with closing(http.client.HTTPConnection(address, timeout=ANSWER_WITHIN_S)) as connection:
        connection.request("GET", "/api/v1/status/buildinfo")
        text = json.loads(connection.getresponse().read())["data"]["version"]
    if not text:
        return UPSTREAM_VERSION
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def write(address: str, series: Sequence[StoredSamples], natives: Sequence[StoredHistograms] = ()) -> None:
    """Send all samples in one request of remote write. Prometheus wants those of a series in the order of time."""
    message = request_1((dict(one.labels), one.samples) for one in series)
    for native in natives:
        _add(message, native)
    body = snappy(message)
    with closing(http.client.HTTPConnection(address, timeout=ANSWER_WITHIN_S)) as connection:
        connection.request("POST", "/api/v1/write", body, REMOTE_WRITE)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status < 300, f"{answer.status}: {text}"


def _add(message: Any, native: StoredHistograms) -> None:
    """Add an entry for each run of floats or histograms, because those of one entry are stored one kind at a time."""
    labels = [(name.encode(), value.encode()) for name, value in native.labels]
    for is_histogram, run in groupby(native.samples, lambda point: isinstance(point[1], HistogramValue)):
        one = message.timeseries.add()
        for name, text in labels:
            one.labels.add(name=name, value=text)
        for ts_ms, value in run:
            if not is_histogram:
                one.samples.add(timestamp=ts_ms, value=value)
            else:
                assert isinstance(value, HistogramValue)
                _fill(one.histograms.add(timestamp=ts_ms), value)


def _fill(message: Any, value: HistogramValue) -> None:
    """A counter has integer counts, a gauge float ones."""
    shape, counts = value.columns().shapes[0], value.columns().buckets.tolist()
    message.schema, message.sum, message.zero_threshold = shape.schema, value.sum, shape.zero_threshold
    message.reset_hint = value.hint
    message.custom_values.extend(shape.bounds)
    for spans, side in ((shape.positive, message.positive_spans), (shape.negative, message.negative_spans)):
        for offset, length in spans:
            side.add(offset=offset, length=length)
    sides = counts[: shape.positive_buckets], counts[shape.positive_buckets :]
    if value.hint == GAUGE:
        message.count_float, message.zero_count_float = value.count, value.zero_count
        message.positive_counts.extend(sides[0])
        message.negative_counts.extend(sides[1])
        return
    message.count_int, message.zero_count_int = int(value.count), int(value.zero_count)
    for side, deltas in zip(sides, (message.positive_deltas, message.negative_deltas), strict=True):
        deltas.extend(int(count - before) for before, count in pairwise([0.0, *side]))


def _wait_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    give_up_at = time.monotonic() + READY_WITHIN_S
    while not _is_ready(address):
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < give_up_at, log.read_text()[-3000:]
        time.sleep(0.05)


def _is_ready(address: str) -> bool:
    try:
        with closing(http.client.HTTPConnection(address, timeout=1.0)) as connection:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200
    except OSError:
        return False
