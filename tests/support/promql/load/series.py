"""Series of the drill: copies of the differential test's dataset, told apart by the label `copy`."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from support.promql.differential.dataset import StoredSamples, dataset
from support.promql.differential.prometheus import REMOTE_WRITE
from support.senders.remote_write import request_1, snappy
from tsdb.rules.unit_tests.notation import labels_of

COPY = "copy"
TIMEOUT_S = 60.0


def copies(base_ms: int, series: int) -> Iterator[list[StoredSamples]]:
    """At least `series` series, a copy of the dataset at a time."""
    whole = dataset(base_ms)
    for number in range(-(-series // len(whole))):
        yield [replace(one, labels=labels_of({**dict(one.labels), COPY: f"{number:02d}"})) for one in whole]


def send(connection: http.client.HTTPConnection, series: Sequence[StoredSamples]) -> None:
    """One request of remote write."""
    body = snappy(request_1((dict(one.labels), one.samples) for one in series))
    connection.request("POST", "/api/v1/write", body, REMOTE_WRITE)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status < 300, f"{answer.status}: {text!r}"


def fill(address: str, base_ms: int, series: int) -> int:
    """Send the copies to HOST:PORT. Returns the number of series."""
    sent = 0
    with closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
        for one in copies(base_ms, series):
            send(connection, one)
            sent += len(one)
    return sent
