"""The host's metrics carry the node exporter's names and one time, and a missing metric stays left out."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from tsdb.cli.agent import host
from tsdb.cli.agent.host import HostSource, Reading
from tsdb.model.labels import LabelLimits, metric_name, normalize_labels, parse_labels


def test_names_are_those_of_the_node_exporter() -> None:
    found = HostSource("agent", "h").measure(1_700_000_000_000)
    names = {metric_name(sample.canonical).decode() for sample in found}
    assert names >= {
        "node_cpu_seconds_total",
        "node_memory_MemTotal_bytes",
        "node_memory_MemAvailable_bytes",
        "node_load1",
        "node_network_receive_bytes_total",
        "node_boot_time_seconds",
        "node_time_seconds",
    }
    assert {sample.ts_ms for sample in found} == {1_700_000_000_000}
    assert all(math.isfinite(sample.value) for sample in found)


def test_every_series_is_one_that_the_gateway_takes() -> None:
    found = HostSource("agent", "h").measure(0)
    canonical = [sample.canonical for sample in found]
    assert len(set(canonical)) == len(canonical)
    for labels in canonical:
        assert normalize_labels(labels, LabelLimits()) == labels
        assert {"job": "agent", "instance": "h"}.items() <= dict(parse_labels(labels)).items()


def test_what_the_machine_does_not_show_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hidden() -> Iterator[Reading]:
        asked.append(1)
        raise NotImplementedError
        yield

    monkeypatch.setattr(host, "load", hidden)
    source = HostSource("agent", "h")
    for _ in range(3):
        names = {metric_name(sample.canonical) for sample in source.measure(0)}
        assert b"node_load1" not in names
        assert b"node_cpu_seconds_total" in names
    assert len(asked) == 1


def test_a_device_that_is_removed_ends_with_a_stale_marker() -> None:
    devices = ["sda", "sdb"]
    source = HostSource("agent", "h")
    source._readers = [lambda: iter([("node_disk_reads_completed_total", {"device": one}, 1.0) for one in devices])]
    assert not any(math.isnan(sample.value) for sample in source.measure(1_000))
    devices.pop()
    (gone,) = [sample for sample in source.measure(2_000) if math.isnan(sample.value)]
    assert dict(parse_labels(gone.canonical))["device"] == "sdb"
    assert (gone.ts_ms, int(np.float64(gone.value).view(np.uint64))) == (2_000, 0x7FF0000000000002)
    assert not any(math.isnan(sample.value) for sample in source.measure(3_000))
