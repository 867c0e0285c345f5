"""The partitioner: frozen vectors, and those of Kafka's own test suite."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.data.log_records import GOLDEN
from tsdb.model.partitioner import murmur2, partition_of

VECTORS = json.loads((GOLDEN / "v1/hash_vectors.json").read_text())["murmur2"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["murmur2"])
def test_murmur2_and_partition_vectors_stand(vector: dict[str, Any]) -> None:
    key = bytes.fromhex(vector["key"])
    assert murmur2(key) == int(vector["murmur2"], 16)
    for partitions, partition in vector["partitions"].items():
        assert partition_of(key, int(partitions)) == partition


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_agrees_with_kafkas_own_tests(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % (1 << 32)


def test_keys_spread_evenly() -> None:
    counts = [0] * 18
    for index in range(18_000):
        counts[partition_of(b"job\xffinstance-%d:9100" % index, 18)] += 1
    assert min(counts) > 850
    assert max(counts) < 1150
