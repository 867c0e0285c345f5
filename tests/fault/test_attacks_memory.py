"""Attacks the promise that memory is bounded: a source brings ever new series with long labels.

The gateway refuses them by name and others go on; a store whose gateways do not keeps to its limits, one partition
waits alone, and nothing that was accepted is lost. The same with 300,000 series: tests/soak/test_attacks_memory.py.
"""

from __future__ import annotations

from pathlib import Path

from support.drills.memory_drills import MIB, STORE_BESIDE_BYTES, ends_in_a_flood, limited_flood, unlimited_flood
from support.servers.deployments import embedded, on_kafka
from support.shared_servers import SharedBroker

SERIES = 12_000
SOURCE_MAX = 1_000
HARD_BYTES = 24 * MIB  # A partition has 8 MiB, of which 4 are for labels. They suffice for 2,000 of these series.
LIMITED = ("--source-series-max", str(SOURCE_MAX))
UNLIMITED = ("--source-series-max", "1000000")
SMALL = ("--memory-soft-bytes", str(HARD_BYTES), "--memory-hard-bytes", str(HARD_BYTES))


def test_a_flood_of_series_is_refused_and_another_client_feels_nothing(tmp_path: Path) -> None:
    with embedded(tmp_path, *LIMITED) as running:
        limited_flood(running, source_max=SOURCE_MAX, series=SERIES, calls=30)
        ends_in_a_flood(running, series=2 * SOURCE_MAX)


def test_a_store_whose_gateways_limit_nothing_keeps_to_its_memory(kafka: SharedBroker, tmp_path: Path) -> None:
    with on_kafka(tmp_path, kafka.bootstrap, gateway=UNLIMITED, store=SMALL) as running:
        unlimited_flood(
            running,
            series=SERIES,
            calls=30,
            hard_bytes=HARD_BYTES,
            beside_bytes=STORE_BESIDE_BYTES,
            restart_hard_bytes=1024 * MIB,
        )
