"""Attacks the promise that memory is bounded, at size: 300,000 series with 2 KB of labels from one source.

Seen before there were limits: a store of 200 MiB grew to 1.8 GB, failed the reads of all, and after a restart every
partition was `memory_hard` at offset 0.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.drills.memory_drills import (
    GATEWAY_BESIDE_BYTES,
    MIB,
    STORE_BESIDE_BYTES,
    ends_in_a_flood,
    limited_flood,
    unlimited_flood,
)
from support.servers.deployments import embedded, on_kafka
from support.shared_servers import SharedBroker

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

SERIES = 300_000
SOURCE_MAX = 20_000
HARD_BYTES = 200 * MIB
CHUNK_BYTES = 200 * MIB
ROOMY_BYTES = 6 * 1024 * MIB
LIMITED = ("--source-series-max", str(SOURCE_MAX))
UNLIMITED = ("--source-series-max", "10000000")
SMALL = ("--memory-soft-bytes", str(HARD_BYTES), "--memory-hard-bytes", str(HARD_BYTES))


def test_a_flood_on_one_process_is_refused_and_another_client_feels_nothing(tmp_path: Path) -> None:
    with embedded(tmp_path, *LIMITED) as running:
        limited_flood(running, source_max=SOURCE_MAX, series=SERIES, calls=200)
        ends_in_a_flood(running, series=2 * SOURCE_MAX)


def test_a_flood_on_a_gateway_is_refused_and_another_client_feels_nothing(kafka: SharedBroker, tmp_path: Path) -> None:
    with on_kafka(tmp_path, kafka.bootstrap, gateway=LIMITED) as running:
        limited_flood(running, source_max=SOURCE_MAX, series=SERIES, calls=200)
        ends_in_a_flood(running, series=2 * SOURCE_MAX)


def test_a_store_whose_gateways_limit_nothing_keeps_to_its_memory(kafka: SharedBroker, tmp_path: Path) -> None:
    with on_kafka(tmp_path, kafka.bootstrap, gateway=UNLIMITED, store=SMALL) as running:
        unlimited_flood(
            running,
            series=SERIES,
            calls=200,
            hard_bytes=HARD_BYTES,
            beside_bytes=STORE_BESIDE_BYTES,
            restart_hard_bytes=ROOMY_BYTES,
        )
        ends_in_a_flood(running, series=SOURCE_MAX)


def test_one_process_that_limits_nothing_keeps_to_its_memory(tmp_path: Path) -> None:
    with embedded(tmp_path, *UNLIMITED, *SMALL, "--chunk-memory-bytes", str(CHUNK_BYTES)) as running:
        unlimited_flood(
            running,
            series=SERIES,
            calls=200,
            hard_bytes=HARD_BYTES,
            beside_bytes=STORE_BESIDE_BYTES + GATEWAY_BESIDE_BYTES + CHUNK_BYTES,
            restart_hard_bytes=ROOMY_BYTES,
        )
        ends_in_a_flood(running, series=SOURCE_MAX)
